"""`penstock verify` as typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


def test_verify_says_what_was_counted_and_compared(penstock: Run, database18: str, tmp_path: Path) -> None:
    """As text and as JSON; exit code 5 and the line of what is missing."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2,y\n3,z\n")
    to = ("--to", database18)
    load_id = penstock("load", str(path), "--into", "t", "--create", "--json", *to).object["load_id"]
    counted = penstock("verify", load_id[:8], *to)
    assert counted.code == 0, counted.err
    head, table, end, unseen = counted.out.splitlines()
    assert head.startswith(f"load {load_id} on ")
    assert head.endswith(": 1 object, 3 records")
    assert (table, end) == ("  public.t: 3 stored; the table has 3 rows", "counts agree")
    assert f"penstock verify {load_id} " in unseen
    assert unseen.endswith(" --values")
    compared = penstock("verify", load_id, "--values", *to)
    assert compared.out.splitlines()[-2:] == ["  compared 3 records (12 B) with the table, both ways", "verified"]
    described = penstock("verify", load_id, "--json", *to).object
    assert (described["agrees"], described["has_values"], "is_verified" in described) == (True, False, False)
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


def test_corrected_records_are_named(penstock: Run, database18: str, tmp_path: Path) -> None:
    """They are not compared, so rows are compared with the files one way only."""
    path, bad, to = tmp_path / "rows.csv", tmp_path / "bad.csv", ("--to", database18)
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
    path.write_text("a,b\n1,x\ntwo,y\n")
    loaded = penstock("load", str(path), "--into", "t", "--mode", "truncate", "--on-error", "reject", "--json", *to)
    load_id = loaded.object["load_id"]
    assert penstock("rejects", load_id, "--reject-file", str(bad), *to).code == 0
    bad.write_text("a,b\n2,y\n")
    assert penstock("retry", load_id, str(bad), *to).code == 0
    assert penstock("verify", load_id, "--values", *to).out.splitlines()[-2:] == [
        "  compared 1 record (10 B) with the table; 1 record from a corrected reject file left out",
        "verified",
    ]


def test_latest_is_the_newest_load(penstock: Run, database18: str, tmp_path: Path) -> None:
    """Complete or not, so that no older load is verified in its place; without an id, a hint says what lists them."""
    to = ("--to", database18)
    none = penstock("verify", "latest", *to)
    assert (none.code, "the ledger has no load" in none.err) == (6, True)
    for name in ("first", "second"):
        path = tmp_path / f"{name}.csv"
        path.write_text("a,b\n1,x\n")
        assert penstock("load", str(path), "--into", "t", "--create", *to).code == 0
    listed = penstock("loads", "--json", *to).object["loads"]
    verified = penstock("verify", "latest", *to)
    assert verified.code == 0, verified.err
    assert listed[-1]["load_id"] in verified.out
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("UPDATE penstock.loads SET state = 'running' WHERE id = %s", [listed[-1]["load_id"]])
    assert "has not ended" in penstock("verify", "latest", *to).err
    unnamed = penstock("verify", *to)
    assert unnamed.code == 2
    assert "HINT:  The ids are listed by penstock loads. See penstock verify --help." in unnamed.err
    unknown = penstock("verify", "t", *to)
    assert unknown.code == 6
    assert "load t does not exist" in unknown.err
    assert "See penstock loads" in unknown.err
    assert unknown.err.endswith("--into t.\n")


def test_rows_of_others_are_mentioned_only_if_there_may_be_some(penstock: Run, database18: str, tmp_path: Path) -> None:
    """A table that has as many rows as were stored has no others."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    to = ("--to", database18)
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int, b text)")
        assert penstock("load", str(path), "--into", "t", *to).code == 0
        assert "  public.t: 2 stored; the table has 2 rows" in penstock("verify", "latest", *to).out.splitlines()
        connection.execute("INSERT INTO t VALUES (3, 'z')")
    line = "  public.t: 2 stored; the table has 3 rows, which may include rows of others"
    assert line in penstock("verify", "latest", *to).out.splitlines()


def test_counts_that_differ_are_a_warning(penstock: Run, database18: str, tmp_path: Path) -> None:
    """The exit code is 0, because others may have deleted the rows, and the word is neither agree nor verified."""
    to = ("--to", database18)
    for name in ("first", "second"):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"a,b\n1,{name}\n2,{name}\n")
        assert penstock("load", str(path), "--into", "t", "--create", *to).code == 0
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("DELETE FROM t WHERE b = 'first' AND a = '1'")
    warning = "warning: public.t has 3 rows, and all loads together have left 4 there: others may have deleted rows"
    counted = penstock("verify", "latest", "--quiet", *to)
    assert (counted.code, counted.out.splitlines()[2:4]) == (0, ["counts differ", warning])
    compared = penstock("verify", "latest", "--values", *to)
    assert compared.code == 0
    assert compared.out.splitlines()[-2] == "counts differ"
    assert compared.out.splitlines()[-1].startswith(f"{warning}, or a row may stand for equal records")
    described = penstock("verify", "latest", "--values", "--json", *to).object
    assert (described["is_verified"], described["agrees"], described["problems"]) == (False, False, [])
    assert described["tables"][0]["floor_of_all"] == 4


def test_table_is_verified_with_all_its_loads(penstock: Run, database18: str, tmp_path: Path) -> None:
    """Each is listed, and a row that is missing is a problem of all."""
    to = ("--to", database18)
    for name in "ab":
        (tmp_path / name).write_text(f"id,n\n{name},1\n")
        assert penstock("load", str(tmp_path / name), "--into", "t", "--create", "--header", *to).code == 0
    verified = penstock("verify", "--into", "t", "--values", *to)
    first, *loads, verdict = verified.out.splitlines()
    assert (verified.code, len(loads), verdict) == (0, 2, "verified")
    assert first.startswith("public.t on ")
    assert first.endswith(": 2 loads")
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute("INSERT INTO t VALUES ('c', '1')")
    found = penstock("verify", "--into", "t", "--json", *to)
    assert found.code == 5
    assert json.loads(found.out)["problems"][0]["message"] == "has 3 rows, and all loads together have stored 2"
    both = penstock("verify", "latest", "--into", "t", *to)
    assert (both.code, both.out) == (2, "")
