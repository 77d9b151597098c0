"""A new landing is one entry of the landings and, for a statement of its own, one class and one entry of those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import DataError, UsageError
from penstock.core.values.job import LoadJob
from penstock.core.values.mode import LANDINGS, Landing
from penstock.loading.land.merges import STATEMENTS, Merge, MergeStatement
from penstock.loading.loader import Loader
from penstock.loading.values.plan import ForeseenLoad
from penstock.loading.views.plan import describe_plan
from support.files import write_to
from support.loads import IMPATIENT, Loads
from support.modes import landing_tables, mode_target

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.ledger.values import MergeCounts
    from penstock.loading.land.context import NoteStatement
    from penstock.loading.land.merge_errors import NameRecord

REFILL = Landing(
    statement="refill", is_fresh=True, events=("INSERT", "DELETE"), readers_if_staged="readers see the old rows"
).staged()


class Refill(MergeStatement):
    """Deletes all rows and inserts the records, without TRUNCATE's lock."""

    def run(self, name_record: NameRecord, note: NoteStatement) -> MergeCounts:
        """Delete, then insert."""
        self._connection.execute(f"DELETE FROM {self.staged.facts.name}".encode())
        return Merge(self._connection, self.staged).run(name_record, note)


@pytest.fixture(autouse=True)
def refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the mode and its statement to the lists."""
    monkeypatch.setitem(LANDINGS, "refill", REFILL)  # type: ignore[misc]
    monkeypatch.setitem(STATEMENTS, "refill", Refill)


@pytest.mark.parametrize("on_error", ["stop", "reject"])
def test_a_new_mode_lands_the_records_in_its_own_way(database18: str, tmp_path: Path, on_error: str) -> None:
    """Each time: like every landing that leaves no former rows, it loads a loaded file again."""
    loads = Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (7)")
    path = write_to(tmp_path / "rows.csv", "a\n1\n2\n")
    for _ in range(2):
        outcome = penstock.load(path, "t", to=database18, mode="refill", on_error=on_error)  # type: ignore[arg-type]
        assert outcome.rows == 2
        assert loads.rows() == [(1,), (2,)]
    assert landing_tables(loads) == []


def test_a_new_mode_is_undone_when_it_fails(database18: str, tmp_path: Path) -> None:
    """Its rows are those of before, and its staging table is gone."""
    loads = Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (7)")
    with pytest.raises(DataError):
        loads.run(mode_target(write_to(tmp_path / "rows.csv", "a\n1\n1\n"), "refill"))
    assert loads.rows() == [(7,)]


def test_a_new_mode_is_checked_and_described_like_the_others(database18: str, tmp_path: Path) -> None:
    """By what its entry says."""
    Loads(database18, setup="CREATE TABLE t (a int PRIMARY KEY)")
    path = write_to(tmp_path / "rows.csv", "a\n1\n")
    with Loader(ConnectionFactory(database18)) as loader:
        with pytest.raises(UsageError, match="--key"):
            loader.plan(LoadJob(targets=(mode_target(path, "refill", key=("a",)),), rules=IMPATIENT))
        plan = loader.plan(LoadJob(targets=(mode_target(path, "refill"),), rules=IMPATIENT))
        assert "refill; readers see the old rows" in "\n".join(describe_plan(ForeseenLoad(plan=plan)))
    assert plan.targets[0].is_staged
