"""Reports the columns that the load adds and widens; they are changed in the transaction that records the load."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.frozen import frozen
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.model.load.outcome import LoadOutcome
from penstock.model.load.part import Rows
from penstock.model.load.plan import LoadPlan
from penstock.model.source.types import ColumnChange


@frozen
class ChangedTable:
    """A table, and the columns that the load adds to it or widens."""

    table: str
    changes: tuple[ColumnChange, ...]


@frozen
class ColumnChanges:
    """The tables whose columns the load changes before its first row."""

    tables: tuple[ChangedTable, ...]

    @property
    def is_refusing(self) -> bool:
        """Whether the load would not begin."""
        return False

    def describe(self) -> Sequence[str | Rows]:
        """Return a line for each change: the action of ALTER TABLE, and the value that asks for it."""
        rows = [
            (f"table {each.table}", change.action, "" if change.decided_by is None else f"({change.decided_by})")
            for each in self.tables
            for change in each.changes
        ]
        return ["columns changed before the rows", Rows(rows, "<<<")]


class Columns(Step):
    """Reports what claim/write.py does."""

    name = "columns"

    def __init__(self, plan: LoadPlan) -> None:
        changes = {target.table: target.changes for target in plan.targets if target.changes}
        tables = tuple(ChangedTable(table=str(table), changes=each) for table, each in changes.items())
        self._part = ColumnChanges(tables=tables) if tables else None

    def plan(self, facts: PlanFacts) -> ColumnChanges | None:  # noqa: ARG002 (a step's)
        """Return the changes."""
        return self._part

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:  # noqa: ARG002 (a step's)
        """Return the outcome with the changes."""
        return outcome if self._part is None else outcome.with_part(self.name, self._part)
