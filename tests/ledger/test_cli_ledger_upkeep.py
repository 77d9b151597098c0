"""The ledger's upkeep: which loads are listed, what is pruned and discarded, and which copies of data are dropped."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from support.files import write_to
from support.loads import Loads, target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.command import Finished

    Run = Callable[..., Finished]


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide a database with a table."""
    return Loads(database18, piece_bytes=509, setup="CREATE TABLE t (a int PRIMARY KEY, b text)")


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """Provide a file with one bad record."""
    path = write_to(tmp_path / "bad.csv", "a,b\n1,x\nbad,y\n3,z\n")
    return str(path)


def _age(loads: Loads, interval: str) -> None:
    """Have all loads begun and ended so much earlier."""
    loads.execute(
        f"UPDATE penstock.loads SET began_at = began_at - interval '{interval}',"
        f" changed_at = changed_at - interval '{interval}'"
    )


def test_loads_can_be_chosen(penstock: Run, loads: Loads, tmp_path: Path) -> None:
    """By age, table and number; the newest are shown, and that there are earlier ones is said."""
    loads.execute("CREATE TABLE u (a int, b text)")
    for number in range(3):
        path = write_to(tmp_path / f"{number}.csv", f"a,b\n{number},x\n")
        loads.run(target(path, into="u" if number == 1 else "t"))
        _age(loads, "1 day")

    def tables(*options: str) -> list[str]:
        listed = penstock("loads", "--to", loads.conninfo, "--json", *options).object["loads"]
        return [load["tables"][0].removeprefix("public.") for load in listed]

    assert tables() == ["t", "u", "t"]
    assert tables("--limit", "2") == ["u", "t"]
    assert tables("--since", "60h") == ["u", "t"]
    assert tables("--since", "2000-01-01", "--into", "u") == tables("--into", "public.u") == ["u"]
    shown = penstock("loads", "--to", loads.conninfo, "--limit", "2").out
    assert "earlier loads are not shown" in shown
    assert shown.startswith("loads on PostgreSQL ")
    for since in ("soon", "2026", "29.11.2026"):
        refused = penstock("loads", "--to", loads.conninfo, "--since", since)
        assert (refused.code, f'"{since}" for --since' in refused.err) == (2, True)
        assert "2026-11-29" in refused.err


def test_prune_keeps_what_prevents_loading_twice(penstock: Run, loads: Loads, tmp_path: Path) -> None:
    """One row of each object; what loads show says of it, stays as it was."""
    loads.chop(500)
    path = write_to(tmp_path / "numbers.csv", "a,b\n" + "".join(f"{number},x\n" for number in range(3000)))
    loads.run(target(path), batch_bytes=4000)
    assert loads.execute("SELECT count(*) > 3 FROM penstock.ranges") == [(True,)]
    where = ("--to", loads.conninfo)
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    assert penstock("loads", "prune", "--older-than", "90d", *where).out.startswith("pruned 0 loads")
    _age(loads, "91 days")
    before = penstock("loads", "show", load_id, *where, "--json").object
    freed = penstock("loads", "prune", "--older-than", "90d", *where, "--json").object
    assert freed["loads"] == 1
    assert freed["size_bytes"] > 500
    assert loads.execute("SELECT count(*) FROM penstock.ranges") == [(1,)]
    assert loads.execute("SELECT job IS NULL FROM penstock.loads") == [(True,)]
    after = penstock("loads", "show", load_id, *where, "--json").object
    assert after["files"] == before["files"]
    again = loads.run(target(path))
    assert (again.objects_skipped, again.rows) == (1, 0)
    # A copy in its place, as by rsync -a: the ledger has no checksums any more.
    shutil.copy2(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    assert loads.run(target(path)).objects_skipped == 1
    assert penstock("loads", "prune", "--older-than", "90d", *where).out.startswith("pruned 0 loads")


def test_loads_of_a_table_are_found_by_its_name_as_sql_has_it(penstock: Run, loads: Loads, tmp_path: Path) -> None:
    """Quoted, with dots and capitals, or as the list shows it."""
    loads.execute('CREATE TABLE "Or.ders" (a int, b text)')
    path = write_to(tmp_path / "f.csv", "a,b\n1,x\n")
    loads.run(target(path, into='"Or.ders"'))
    for name in ('"Or.ders"', 'public."Or.ders"', 'PUBLIC."Or.ders"', "public.Or.ders"):
        assert len(penstock("loads", "--into", name, "--to", loads.conninfo, "--json").object["loads"]) == 1, name


def test_rejected_records_are_told_until_they_are_discarded(penstock: Run, loads: Loads, bad: str) -> None:
    """The next run exits with 3 as the first did; a prune does not touch them; discarded they are gone."""
    command = ("load", bad, "--into", "t", "--on-error", "reject", "--to", loads.conninfo)
    assert penstock(*command).code == 3
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    again = penstock(*command)
    assert again.code == 3
    assert f"not loaded: 1 record rejected by load {load_id}" in again.out
    assert penstock(*command, "--json").object["rejects_left"] == [{"load_id": load_id, "count": 1}]
    _age(loads, "91 days")
    assert penstock("loads", "prune", "--older-than", "1d", "--to", loads.conninfo).out.startswith("pruned 0 loads")
    discarded = penstock("rejects", load_id[:8], "--discard", "--to", loads.conninfo)
    assert discarded.out.startswith(f"discarded 1 rejected record of load {load_id} on PostgreSQL ")
    assert loads.execute("SELECT count(*) FROM penstock.rejects") == [(0,)]
    assert penstock(*command).code == 0
    assert penstock("loads", "prune", "--older-than", "1d", "--to", loads.conninfo).out.startswith("pruned 1 load")


@pytest.mark.parametrize("remedy", [("repair",), ("loads", "prune", "--older-than", "1d")])
def test_copies_that_failed_merges_have_left_are_named_and_dropped(
    penstock: Run, loads: Loads, tmp_path: Path, remedy: tuple[str, ...]
) -> None:
    """Whoever resumes the load reads its files again, and every row is loaded once."""
    path = write_to(tmp_path / "twice.csv", "a,b\n1,x\n2,y\n2,z\n")
    where = ("--to", loads.conninfo)
    command = ("load", str(path), "--into", "t", "--mode", "upsert", "--key", "a", *where)
    assert penstock(*command).code == 5
    (left,) = penstock("loads", *where, "--json").object["staging"]
    assert re.fullmatch(r"penstock\.staging_[0-9a-f]{16}_0", left["table"])
    assert f"has left a copy of its records in {left['table']}" in penstock("loads", *where).out
    if remedy != ("repair",):
        assert left["table"] not in penstock(*remedy, *where).out
        _age(loads, "2 days")
    else:
        assert left["table"] in penstock("repair", "--plan", *where).out
    assert f"dropped {left['table']}" in penstock(*remedy, *where).out
    assert not loads.has_table(left["table"])
    assert penstock("loads", *where, "--json").object["staging"] == []
    assert penstock(*command, "--keep", "last").code == 0
    assert loads.execute("SELECT a, b FROM t ORDER BY a") == [(1, "x"), (2, "z")]


@pytest.mark.part("rest")
def test_tables_that_a_failed_replacement_has_left_are_named_and_dropped(
    penstock: Run, loads: Loads, tmp_path: Path
) -> None:
    """And never the table that one which succeeded has put in the old one's place."""
    path, where = tmp_path / "twice.csv", ("--to", loads.conninfo)
    path.write_text("a,b\n1,x\n2,y\n2,z\n")
    command = ("load", str(path), "--into", "t", "--mode", "replace", *where)
    assert penstock(*command).code == 5
    (left,) = penstock("loads", *where, "--json").object["staging"]
    assert f"dropped {left['table']}" in penstock("repair", *where).out
    assert not loads.has_table(left["table"])
    path.write_text("a,b\n1,x\n2,y\n")
    assert penstock(*command, "--changed", "load").code == 0
    assert penstock("loads", *where, "--json").object["staging"] == []
    assert penstock("repair", *where).code == 0
    assert loads.execute("SELECT a, b FROM t ORDER BY a") == [(1, "x"), (2, "y")]
