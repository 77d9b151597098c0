"""A database that was loaded into is dumped, restored or copied: its tables are the same tables."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.core.errors import DataError, TargetError
from penstock.core.values.job import LoadRules
from support.dumps import copy_as_template, dump_and_restore, restore_in_place
from support.loads import IMPATIENT, Loads, share_ledger, target
from support.modes import Killed, landing_tables, mode_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer
    from support.servers import PgServer

ROWS = 600
BATCH = 2000
CHANGED = replace(IMPATIENT, changed="load")


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads in tiny blocks and batches into a database with tables t and u."""
    setup = "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE u (a int, b text)"
    return Loads(database18, piece_bytes=509, chunk_bytes=500, setup=setup)


@pytest.fixture(params=["database", "cluster", "in place", "template"])
def move(
    request: pytest.FixtureRequest, pg18: PgServer, new_server: Callable[..., EmbeddedServer]
) -> Callable[[Loads], Loads]:
    """Provide what brings a database elsewhere, and returns loads into it."""

    def bring(loads: Loads) -> Loads:
        if request.param == "in place":
            return make_loads(restore_in_place(pg18, loads.conninfo))
        if request.param == "template":
            return make_loads(copy_as_template(pg18, loads.conninfo, pg18.fresh_database()))
        into = pg18.fresh_database() if request.param == "database" else new_server().ensure_running()
        return make_loads(dump_and_restore(pg18, loads.conninfo, into))

    return bring


def make_loads(conninfo: str) -> Loads:
    """Return loads in tiny blocks."""
    return Loads(conninfo, piece_bytes=509, chunk_bytes=500)


def write(path: Path, *, bad: int | None = None) -> Path:
    """Write a csv file with the numbers from 0; the record of `bad` has a letter of the same width for a number."""
    text = "".join(f"{'x' * len(str(n)) if n == bad else n},value {n}\n" for n in range(ROWS))
    path.write_text("a,b\n" + text)
    return path


def numbers(loads: Loads) -> list[int]:
    """Return column a in order."""
    return [row[0] for row in loads.execute("SELECT a FROM t ORDER BY a")]


def fail(loads: Loads, path: Path, mode: str = "append", **options: object) -> None:
    """Run a load that ends at a bad record after some batches, and mend the file."""
    write(path, bad=500)
    with pytest.raises(DataError):
        loads.run(mode_target(path, mode, **options), batch_bytes=BATCH)
    assert loads.execute("SELECT state, count(*) FROM penstock.loads JOIN penstock.ranges ON load = id GROUP BY 1")
    write(path)


def test_complete_load_is_skipped_there(loads: Loads, move: Callable[[Loads], Loads], tmp_path: Path) -> None:
    """Its rows came along, whatever oid the table has."""
    path = write(tmp_path / "f")
    loads.run(target(path))
    there = move(loads)
    assert there.run(target(path)).objects_skipped == 1
    assert numbers(there) == list(range(ROWS))


@pytest.mark.part("rest")
def test_unfinished_load_is_resumed_there(loads: Loads, move: Callable[[Loads], Loads], tmp_path: Path) -> None:
    """What was committed is not sent again; and then once more, by the oid that the table has there."""
    path = tmp_path / "f"
    fail(loads, path)
    there = move(loads)
    before = there.count()
    assert 0 < before < ROWS
    there.execute("CREATE TABLE kept AS TABLE t; TRUNCATE t")
    with pytest.raises(TargetError, match="was emptied after a part of this load") as caught:
        there.run(target(path), rules=CHANGED)
    assert "--emptied" in str(caught.value.hint)
    there.execute("INSERT INTO t TABLE kept")
    assert there.run(target(path), rules=CHANGED).rows == ROWS - before
    assert numbers(there) == list(range(ROWS))
    assert there.execute("SELECT count(*), min(state) FROM penstock.loads") == [(1, "complete")]
    there.execute("ALTER TABLE t RENAME TO renamed")
    assert there.run(target(path, into="renamed")).objects_skipped == 1


@pytest.mark.part("rest")
def test_staged_records_come_along(loads: Loads, move: Callable[[Loads], Loads], tmp_path: Path) -> None:
    """The staging table is found by its name too, is merged from there, and goes."""
    path = tmp_path / "f"
    fail(loads, path, "upsert", key=("a",))
    there = move(loads)
    assert len(landing_tables(there)) == 1
    there.run(mode_target(path, "upsert", key=("a",)), rules=CHANGED)
    assert not any("loaded again" in notice for notice in there.notices)
    assert numbers(there) == list(range(ROWS))
    assert landing_tables(there) == []


def take_oid(loads: Loads, *, of: str) -> None:
    """Have the ledger's rows as if another table had their table's oid here."""
    for table in ("objects", "targets"):
        loads.execute(f"UPDATE penstock.{table} SET target_oid = '{of}'::regclass")


@pytest.mark.part("rest")
def test_file_of_another_table_with_the_old_oid_is_loaded(
    loads: Loads, move: Callable[[Loads], Loads], tmp_path: Path
) -> None:
    """The file went into t there, and u has the oid that t had."""
    path = write(tmp_path / "f")
    loads.run(target(path))
    there = move(loads)
    take_oid(there, of="u")
    assert there.run(target(path, into="u")).rows == ROWS
    assert there.run(target(path)).objects_skipped == 1


@pytest.mark.part("rest")
def test_truncation_of_another_table_with_the_old_oid_empties_nothing(
    loads: Loads, move: Callable[[Loads], Loads], tmp_path: Path
) -> None:
    """A load truncated t there, and u has the oid that t had."""
    path, other = write(tmp_path / "f"), write(tmp_path / "g")
    loads.run(target(path, into="u"))
    loads.run(mode_target(other, "truncate"))
    there = move(loads)
    there.execute("UPDATE penstock.targets SET target_oid = 'u'::regclass")
    assert there.run(target(path, into="u")).objects_skipped == 1


@pytest.mark.part("rest")
@pytest.mark.parametrize("mode", ["truncate", "replace"])
def test_rows_that_a_later_load_took_away_are_missing_there_too(
    loads: Loads, move: Callable[[Loads], Loads], tmp_path: Path, mode: str
) -> None:
    """Which load came later is in the ledger."""
    path, other = write(tmp_path / "f"), write(tmp_path / "g")
    loads.run(target(path))
    loads.run(mode_target(other, mode))
    there = move(loads)
    with pytest.raises(TargetError, match="was emptied after objects were loaded") as caught:
        there.run(target(path))
    assert "--emptied" in str(caught.value.hint)
    assert there.count() == ROWS


@pytest.mark.part("rest")
def test_table_restored_without_its_rows_stops_the_load(
    loads: Loads, move: Callable[[Loads], Loads], tmp_path: Path
) -> None:
    """The ledger counts rows where none are."""
    path = write(tmp_path / "f")
    loads.run(target(path))
    there = move(loads)
    there.execute("TRUNCATE t")
    with pytest.raises(TargetError) as caught:
        there.run(target(path))
    assert "--emptied" in str(caught.value.hint)
    assert there.run(target(path), rules=LoadRules(emptied="load")).rows == ROWS


@pytest.mark.part("rest")
def test_oid_decides_where_it_was_recorded(loads: Loads, tmp_path: Path) -> None:
    """A table that was renamed is the same one, and another one that was given its name is not."""
    path = write(tmp_path / "f")
    loads.run(target(path))
    loads.execute("ALTER TABLE t RENAME TO renamed; CREATE TABLE t (a int, b text)")
    assert loads.run(target(path, into="renamed")).objects_skipped == 1
    assert loads.run(target(path)).rows == ROWS
    loads.execute("DROP TABLE t; CREATE TABLE t (a int, b text)")
    assert loads.run(target(path)).rows == ROWS
    assert numbers(loads) == list(range(ROWS))


@pytest.mark.part("rest")
def test_server_that_does_not_tell_its_identifier_is_loaded_into(loads: Loads, pg18: PgServer, tmp_path: Path) -> None:
    """The oids of the database and of the ledger distinguish a restored ledger from the database's own."""
    path = write(tmp_path / "f")
    role = f"user_{secrets.token_hex(4)}"
    loads.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    loads.execute(f"CREATE ROLE {role}; GRANT ALL ON t, u TO {role}")
    share_ledger(loads, role)
    try:
        own = Loads(loads.conninfo, role=role)
        own.run(target(path))
        loads.execute("ALTER TABLE t RENAME TO renamed")
        assert own.run(target(path, into="renamed")).objects_skipped == 1
        loads.execute("ALTER TABLE renamed RENAME TO t")
        there = Loads(dump_and_restore(pg18, loads.conninfo, pg18.fresh_database()), role=role)
        assert there.run(target(path)).objects_skipped == 1
        there.execute(f"DROP OWNED BY {role}")
    finally:
        loads.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_tables_that_inherit_from_a_ledgers_keep_their_rows(loads: Loads, tmp_path: Path) -> None:
    """The oids of a load from elsewhere are replaced in the ledger's own tables only."""
    fail(loads, tmp_path / "rows.csv")
    loads.execute("UPDATE penstock.objects SET origin = 'elsewhere'")
    loads.execute("CREATE TABLE child () INHERITS (penstock.objects); INSERT INTO child SELECT * FROM penstock.objects")
    loads.run(target(tmp_path / "rows.csv"), rules=CHANGED)
    assert numbers(loads) == list(range(ROWS))
    assert loads.execute("SELECT count(*) FROM penstock.loads") == [(1,)]
    assert loads.execute("SELECT DISTINCT origin FROM child") == [("elsewhere",)]


@pytest.mark.part("rest")
def test_table_that_was_dumped_while_it_was_changed_is_refused_until_it_is_repaired(
    move: Callable[[Loads], Loads], loads: Loads, tmp_path: Path
) -> None:
    """A killed load had dropped its key and index and paused autovacuum: by name, repair restores all of it there."""
    loads.execute("CREATE INDEX t_b ON t (b)")
    rules = replace(IMPATIENT, indexes="rebuild", autovacuum="pause")
    path = write(tmp_path / "f")

    def die(number: int) -> None:
        if number == 8:
            raise Killed

    loads.at_piece = die
    with pytest.raises(Killed):
        loads.run(target(path), batch_bytes=BATCH, rules=rules)
    there = move(loads)
    with pytest.raises(TargetError, match="is still changed by load") as caught:
        there.run(target(path), rules=rules)
    assert {'"t_pkey"', '"t_b"'} <= set((caught.value.detail or "").replace(",", "").replace(".", "").split())
    assert "penstock repair" in (caught.value.hint or "")
    for into in (None, "t"):
        found = penstock.doctor(into, to=there.conninfo)
        (refusal,) = (finding for finding in found.findings if finding.severity == "refusal")
        assert "is still changed by load" in refusal.claim
        assert '"t_pkey"' in (refusal.detail or "")
    assert not there.repair().errors
    assert penstock.doctor(to=there.conninfo).would_load
    assert there.indexes() == ["t_b", "t_pkey"]
    assert there.execute("SELECT reloptions FROM pg_class WHERE oid = 't'::regclass") == [(None,)]
    assert there.run(target(path), rules=rules).rows_before + there.count() >= ROWS
    assert numbers(there) == list(range(ROWS))
