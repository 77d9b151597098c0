"""The objects of a load in the ledger: what is committed of them, and when they may be removed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.connect.errors import read_report
from penstock.core.errors import DataError, ServerError, SourceError, TakenOverError
from penstock.ledger.committed import insert_ranges, lacks_object
from penstock.ledger.ledger import Ledger
from penstock.ledger.values import Claim, CommittedRange
from support.loads import IMPATIENT, Loads, target, write_csv
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.core.connect.connection import Connection

_PATIENCE_S = 30.0

RANGE = CommittedRange(
    object_number=0,
    start=4,
    ranges=((4, 8),),
    has_start=True,
    has_end=True,
    records=1,
    rows=1,
    suppressed=0,
    checksum=0,
)


@pytest.fixture
def loads(database18: str) -> Loads:
    """Provide loads in tiny blocks and commands."""
    return Loads(database18, piece_bytes=100, chunk_bytes=100, setup="CREATE TABLE t (a int, b text)")


@pytest.fixture
def claim(loads: Loads, tmp_path: Path) -> Claim:
    """Provide a load that is running, of two objects of which nothing is committed."""
    paths = [write_csv(tmp_path / f"{number}.csv", ["1,one"]) for number in range(2)]
    loads.run(target(paths))
    loads.execute("DELETE FROM penstock.ranges; UPDATE penstock.loads SET state = 'running'")
    ((load_id,),) = loads.execute("SELECT id::text FROM penstock.loads")
    return Claim(load_id=load_id, epoch=1, is_resumed=False, member=1)


@pytest.fixture
def session(loads: Loads) -> Iterator[Connection]:
    """Provide the session of a process that loads."""
    with ConnectionFactory(loads.conninfo).connect() as connection:
        yield connection


def test_no_range_is_committed_of_an_object_that_was_removed(loads: Loads, claim: Claim, session: Connection) -> None:
    """Not even in a transaction that began before."""
    session.execute("BEGIN")
    loads.execute("DELETE FROM penstock.objects WHERE number = 0")
    with pytest.raises(psycopg.errors.NotNullViolation) as caught:
        session.execute(insert_ranges("penstock", claim, [RANGE]))
    assert lacks_object(read_report(caught.value), "penstock")
    assert not lacks_object(read_report(caught.value), "other")


def test_who_removes_an_object_waits_for_ranges_that_are_being_committed_and_then_removes_nothing(
    loads: Loads, claim: Claim, session: Connection
) -> None:
    """Else the object's rows would be stored, and known to nobody."""
    session.execute("BEGIN")
    session.execute(insert_ranges("penstock", claim, [RANGE]))
    errors: list[Exception] = []

    def remove() -> None:
        with ConnectionFactory(loads.conninfo).connect() as connection:
            try:
                Ledger().drop_objects(connection, claim, [0, 1])
            except TakenOverError as error:
                errors.append(error)

    thread = threading.Thread(target=remove)
    thread.start()
    _await_waiting(loads)
    session.execute("COMMIT")
    thread.join(_PATIENCE_S)
    assert len(errors) == 1
    assert loads.execute("SELECT count(*) FROM penstock.objects") == [(2,)]
    with ConnectionFactory(loads.conninfo).connect() as connection:
        Ledger().drop_objects(connection, claim, [1])
    assert loads.execute("SELECT number FROM penstock.objects") == [(0,)]


def test_load_whose_object_is_removed_meanwhile_ends_and_stores_nothing_of_it(loads: Loads, tmp_path: Path) -> None:
    """Not with the server's words for a null in the ledger."""
    path = write_csv(tmp_path / "file.csv", [f"{number},text" for number in range(100)])
    loads.at_piece = lambda number: (
        loads.execute("DELETE FROM penstock.objects") and None if number == 5 else None  # type: ignore[func-returns-value]
    )
    with pytest.raises(TakenOverError):
        loads.run(target(path), sessions=1)
    assert loads.count() == 0


def test_null_in_a_users_own_table_of_ranges_is_an_error_of_the_file(loads: Loads, tmp_path: Path) -> None:
    """Though it has the columns of the ledger's."""
    loads.execute("CREATE TABLE ranges (object int NOT NULL, b text)")
    path = write_csv(tmp_path / "file.csv", ["1,one", ",two"], header="object,b")
    with pytest.raises(DataError) as caught:
        loads.run(target(path, into="ranges"))
    assert "line 3" in str(caught.value.location)


@pytest.mark.part("rest")
@pytest.mark.parametrize("join", [False, True])
def test_staged_records_of_a_file_that_is_gone_are_stored_only_with_join(
    loads: Loads, tmp_path: Path, *, join: bool
) -> None:
    """With it another host may have the file. Also if its table has no other file in this load."""
    loads.execute("ALTER TABLE t ADD PRIMARY KEY (a), ADD CHECK (b <> 'bad')")
    rules = replace(IMPATIENT, join=join)
    folder = tmp_path / "files"
    folder.mkdir()
    write_csv(folder / "1.csv", ["1,one"])
    loads.run(mode_target(folder, "upsert", key=("a",)), rules=rules)
    write_csv(folder / "2.csv", ["2,two", "3,bad"])
    with pytest.raises(DataError):
        loads.run(mode_target(folder, "upsert", key=("a",)), rules=rules)
    assert loads.execute("SELECT state FROM penstock.loads ORDER BY began_at") == [("complete",), ("running",)]
    (folder / "2.csv").unlink()
    loads.execute("ALTER TABLE t DROP CONSTRAINT t_b_check")
    loads.run(mode_target(folder, "upsert", key=("a",)), rules=rules)
    assert loads.rows() == ([(1, "one"), (2, "two"), (3, "bad")] if join else [(1, "one")])
    assert loads.execute("SELECT DISTINCT state FROM penstock.loads") == [("complete",)]


@pytest.mark.part("rest")
def test_staged_record_of_a_file_that_is_gone_cannot_be_rejected(loads: Loads, tmp_path: Path) -> None:
    """With --join another host may have it. The error names the load, so that it is run where the file exists."""
    loads.execute(
        "ALTER TABLE t ADD PRIMARY KEY (a);"
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'full' USING ERRCODE = 'disk_full'; END$$"
    )
    rules = replace(IMPATIENT, on_error="reject", join=True)
    whole = mode_target(tmp_path, "upsert", key=("a",))
    write_csv(tmp_path / "1.csv", ["1,one"])
    loads.run(whole, rules=rules)
    path = write_csv(tmp_path / "2.csv", ["2,two", "3,bad"])
    loads.execute("CREATE TRIGGER fail BEFORE INSERT ON t EXECUTE FUNCTION fail()")
    with pytest.raises(ServerError):
        loads.run(whole, rules=rules)
    loads.execute("DROP TRIGGER fail ON t; ALTER TABLE t ADD CHECK (b <> 'bad')")
    path.unlink()
    with pytest.raises(SourceError, match="is not among the sources of this host"):
        loads.run(whole, rules=rules)
    assert loads.count() == 1
    write_csv(path, ["2,two", "3,bad"])
    assert loads.run(whole, rules=replace(rules, join=False, changed="load")).rejected == 1
    assert loads.rows() == [(1, "one"), (2, "two")]


@pytest.mark.part("rest")
def test_table_that_is_made_anew_loses_no_row_that_another_host_is_committing(loads: Loads, tmp_path: Path) -> None:
    """The table to be replaced was altered, so a new leader drops the landing table beside a member's transaction."""
    folder = tmp_path / "files"
    folder.mkdir()
    write_csv(folder / "1.csv", ["1,one"])
    write_csv(folder / "2.csv", ["x,bad"])
    rules = replace(IMPATIENT, join=True, retry_for=_PATIENCE_S)
    with pytest.raises(DataError):
        loads.run(mode_target(folder, "replace"), rules=rules, sessions=1, batch_bytes=1)
    ((landing,),) = loads.execute("SELECT format('%I.%I', landing_schema, landing_table) FROM penstock.targets")
    assert loads.count(landing) == 1
    (folder / "2.csv").unlink()
    loads.execute("DELETE FROM penstock.objects WHERE uri LIKE '%2.csv'; ALTER TABLE t ALTER b SET DEFAULT 'x'")
    with psycopg.connect(loads.conninfo) as member:
        # As if it had not committed yet.
        kept: list[Any] = loads.execute("DELETE FROM penstock.ranges RETURNING *")
        member.execute(f"LOCK TABLE {landing} IN ROW EXCLUSIVE MODE".encode())
        values = ", ".join(["%s"] * len(kept[0]))
        member.execute(f"INSERT INTO penstock.ranges VALUES ({values})".encode(), kept[0])
        thread = threading.Thread(target=loads.run, args=[mode_target(folder, "replace")], kwargs={"rules": rules})
        thread.start()
        _await_waiting(loads)
    thread.join(_PATIENCE_S)
    assert loads.rows() == [(1, "one")]


def _await_waiting(loads: Loads) -> None:
    """Wait until a session of penstock's waits for a lock, or has had to give up its wait."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'penstock%'"
    until_s = time.monotonic() + _PATIENCE_S
    while loads.execute(query) == [(0,)]:
        assert time.monotonic() < until_s
        time.sleep(0.005)
