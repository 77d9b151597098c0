"""The ledger shows which loads a truncation has emptied: not the server's clock, and also if the load was removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.api.ledger_view import LedgerView
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, TargetError
from penstock.core.values.job import LoadRules
from support.clock import HAS_FAKETIME, with_clock
from support.loads import Loads, target
from support.modes import mode_target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.embedded.server import EmbeddedServer

_LATER = "UPDATE penstock.loads SET began_at = began_at + '1h', changed_at = changed_at + '1h'"


def write(path: Path, *numbers: int) -> Path:
    """Write a csv file of a few numbers."""
    path.write_text("a\n" + "".join(f"{number}\n" for number in numbers))
    return path


@pytest.fixture
def loads(database: str) -> Loads:
    """Provide loads into a database with table t on each version in turn."""
    return Loads(database, setup="CREATE TABLE t (a int)")


@pytest.mark.parametrize("is_atomic", [True, False])
def test_truncation_is_known_though_the_clock_went_back(loads: Loads, tmp_path: Path, *, is_atomic: bool) -> None:
    """The load before it ended later, by the clock."""
    first, second = write(tmp_path / "1", 1), write(tmp_path / "2", 2)
    loads.run(target(first))
    loads.execute(_LATER)
    loads.run(mode_target(second, "truncate"), rules=LoadRules(atomic=is_atomic))
    with pytest.raises(TargetError):
        loads.run(target(first))
    assert loads.run(target(first), rules=LoadRules(emptied="load")).rows == 1
    # The load that counts is the first by the clock.
    assert loads.run(target(first)).rows == 0
    assert loads.rows() == [(1,), (2,)]


def test_load_behind_a_truncation_is_no_truncated_one(loads: Loads, tmp_path: Path) -> None:
    """Though it ended before, by the clock."""
    first, second = write(tmp_path / "1", 1), write(tmp_path / "2", 2)
    loads.run(mode_target(second, "truncate"))
    loads.execute("UPDATE penstock.targets SET truncated_at = truncated_at + '1h'")
    loads.run(target(first))
    assert loads.run(target(first)).objects_skipped == 1
    assert loads.rows() == [(1,), (2,)]


@pytest.mark.parametrize("way", ["fails", "is forgotten"])
def test_truncation_of_a_removed_load_is_known(loads: Loads, tmp_path: Path, way: str) -> None:
    """The load fails at its first record, or is forgotten. Other rows are in the table by then."""
    first, second = write(tmp_path / "1", 1), write(tmp_path / "2", 2)
    first_id = loads.run(target(first)).load_id
    if way == "fails":
        second.write_text("a\nx\n")
        with pytest.raises(DataError):
            loads.run(mode_target(second, "truncate"))
    with LedgerView(ConnectionFactory(loads.conninfo)) as view:
        if way == "is forgotten":
            view.forget(loads.run(mode_target(second, "truncate")).load_id, keeps_rows=True)
        loads.execute("INSERT INTO t VALUES (3)")
        assert [each.load_id for each in view.loads()] == [first_id]
        assert [(each.table, each.unfinished) for each in view.totals()] == [("public.t", 0)]
        with pytest.raises(TargetError, match="is not in the ledger any more"):
            view.find_newest("latest")
        with pytest.raises(TargetError, match="may not have the rows"):
            view.verify(first_id)
        with pytest.raises(TargetError, match="emptied after objects were loaded"):
            loads.run(target(first))
        assert loads.run(target(first), rules=LoadRules(emptied="load")).rows == 1
        assert loads.run(target(first)).objects_skipped == 1
        assert view.forget(first_id) == []


def test_truncated_partitions_are_known_as_well(loads: Loads, tmp_path: Path) -> None:
    """They go with the whole table."""
    loads.execute("CREATE TABLE p (a int) PARTITION BY RANGE (a); CREATE TABLE p1 PARTITION OF p DEFAULT")
    path = write(tmp_path / "1", 1)
    loads.run(target(path, into="p1"))
    loads.run(mode_target(write(tmp_path / "2", 2), "truncate", into="p"))
    with pytest.raises(TargetError):
        loads.run(target(path, into="p1"))


def test_rewritten_table_is_not_an_emptied_one(loads: Loads, tmp_path: Path) -> None:
    """VACUUM FULL and ALTER TABLE give it another file on disk."""
    path = write(tmp_path / "1", 1)
    loads.run(target(path))
    loads.execute("VACUUM FULL t")
    loads.execute("ALTER TABLE t ALTER COLUMN a TYPE bigint")
    assert loads.run(target(path)).objects_skipped == 1


@pytest.mark.part("rest")
@pytest.mark.skipif(not HAS_FAKETIME, reason="libfaketime is not installed (Debian's package libfaketime)")
def test_clock_that_goes_back_an_hour_hides_no_truncation(
    new_server: Callable[..., EmbeddedServer], tmp_path: Path
) -> None:
    """The server is started again with another time."""
    server = new_server()
    loads = Loads(server.ensure_running(), setup="CREATE TABLE t (a int)")
    first, second = write(tmp_path / "1", 1), write(tmp_path / "2", 2)
    loads.run(target(first))
    ((before,),) = loads.execute("SELECT now()")
    server.stop()
    loads = Loads(with_clock(server, "-1h").ensure_running())
    ((after,),) = loads.execute("SELECT now()")
    assert after < before
    loads.run(mode_target(second, "truncate"))
    with pytest.raises(TargetError):
        loads.run(target(first))
    loads.run(target(first), rules=LoadRules(emptied="load"))
    assert loads.run(target(first)).objects_skipped == 1
    assert loads.rows() == [(1,), (2,)]
