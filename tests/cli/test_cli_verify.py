"""`penstock verify` as typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cli.conftest import Finished

    Run = Callable[..., Finished]


def test_verify_says_what_was_counted_and_compared(penstock: Run, database18: str, tmp_path: Path) -> None:
    """As text and as JSON; exit code 5 and the line of what is missing."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2,y\n3,z\n")
    to = ("--to", database18)
    load_id = penstock("load", str(path), "--into", "t", "--create", "--json", *to).object["load_id"]
    counted = penstock("verify", load_id[:8], *to)
    assert counted.code == 0, counted.err
    head, table, end = counted.out.splitlines()
    assert head.startswith(f"load {load_id} on ")
    assert head.endswith(": 1 object, 3 records")
    assert (table, end) == ("  public.t: 3 stored; the table has 3 rows", "verified")
    compared = penstock("verify", load_id, "--values", *to)
    assert "  compared 3 records (12 B) with the table, both ways" in compared.out.splitlines()
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("UPDATE t SET b = 'w' WHERE a = '2'")
    found = penstock("verify", load_id, "--values", *to)
    assert found.code == 5
    assert found.out.splitlines()[-3:] == [
        "2 problems:",
        f"  {path} line 3 is not in the table: 2,y",
        "  public.t has a row that is not in the files: (2,w)",
    ]
    described = penstock("verify", load_id, "--values", "--json", *to)
    assert (described.code, described.object["is_verified"]) == (5, False)
    assert described.object["tables"][0]["missing"] == 1
    assert described.object["problems"][0]["line"] == 3
