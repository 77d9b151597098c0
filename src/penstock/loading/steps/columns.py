"""Three steps that change nothing: they report changed columns, count rows, and check the space on disks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.core.catalogue.catalog import DiskForecast
from penstock.core.connect.connection import Connection
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.values.accounts import Rows
from penstock.ledger.committed import read_coverage
from penstock.ledger.rejects import RejectStore
from penstock.loading.context import LoadTools
from penstock.loading.plan.space import DiskSpace, describe_shortage, note_disk
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.loading.values.objects import PlannedObject
from penstock.loading.values.outcome import LoadOutcome
from penstock.loading.values.plan import LoadPlan
from penstock.loading.values.types import ColumnChange


@slotted
class ChangedTable:
    """A table, and the columns that the load adds to it or widens."""

    table: str
    changes: tuple[ColumnChange, ...]


@slotted
class ColumnChanges:
    """The tables whose columns the load changes before its first row."""

    tables: tuple[ChangedTable, ...]

    @property
    def is_refusing(self) -> bool:
        """Return False: changes of columns do not keep the load from beginning."""
        return False

    def describe(self) -> Sequence[str | Rows]:
        """Return a line for each change: the action of ALTER TABLE, and the value that requires it."""
        rows = [
            (f"table {each.table}", change.action, "" if change.decided_by is None else f"({change.decided_by})")
            for each in self.tables
            for change in each.changes
        ]
        return ["columns changed before the rows", Rows(rows, "<<<")]


class Columns(Step):
    """Reports which columns the load adds or widens. claim/write.py alters the tables when the load is claimed."""

    name = "columns"

    def __init__(self, plan: LoadPlan) -> None:
        changes = {target.table: target.changes for target in plan.targets if target.changes}
        tables = tuple(ChangedTable(table=str(table), changes=each) for table, each in changes.items())
        self._part = ColumnChanges(tables=tables) if tables else None

    def plan(self, facts: PlanFacts) -> ColumnChanges | None:  # noqa: ARG002 (a step's)
        """Return the tables whose columns the load will change, None if there are none."""
        return self._part

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:  # noqa: ARG002 (a step's)
        """Return the outcome with the tables whose columns the load has changed."""
        return outcome if self._part is None else outcome.with_part(self.name, self._part)


class RowCounts(Step):
    """Completes the counts in the outcome from the ledger: of rows, if there were several attempts, and of rejects.

    An attempt counts only the rows that it has sent itself.
    """

    concludes_for_all = True

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Set each object's rows in the load's tally from the ledger, if there were several attempts.

        Do so also if a merge may have rejected records.
        """
        may_have_rejected = bool(load.claimed.landings) and load.plan.job.rules.on_error == "reject"
        if load.tally.attempts > 1 or may_have_rejected:
            coverage = read_coverage(connection, load.tools.ledger.schema, load.load_id)
            load.tally.set_file_rows({number: found.rows for number, found in coverage.items()})

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Return the outcome with the number of records that the load has rejected, according to the ledger.

        The number is None, with a warning, if the ledger could not be read. The outcome is returned unchanged if no
        record can have been rejected: without --on-error reject, unless the load was resumed.
        """
        if load.plan.job.rules.on_error != "reject" and not load.claimed.claim.is_resumed:
            return outcome
        store = RejectStore(load.tools.ledger.schema, load.load_id)
        try:
            try:
                return replace(outcome, rejected=load.at_end(store.count_rejected))
            except KeyboardInterrupt:
                # The load is complete. Count again after an interrupt, so that the user sees what was rejected.
                return replace(outcome, rejected=load.at_end(store.count_rejected))
        except (PenstockError, KeyboardInterrupt) as error:
            # Warn instead of raising an error, because the load is complete.
            why = error.message if isinstance(error, PenstockError) else "interrupted"
            load.tools.warnings.warn("rejects", f"rejected records were not counted: {why}")
            return replace(outcome, rejected=None)


class SpaceCheck(Step):
    """Checks before the load's first attempt whether the server's disks have enough space.

    Before later attempts, the estimate would count rows that this load has already written.
    """

    name = "space"

    def __init__(self) -> None:
        self._is_done = False

    def plan(self, facts: PlanFacts) -> DiskSpace | None:
        """Return how much the load will add to each of the server's disks. Warn of a disk that may become full.

        Return None if nothing is known of the disks, for example because the server runs on another machine, or of what
        is left of the objects, because they would be resumed.
        """
        if "resume" in facts.outlook.actions:
            return None
        disks = _forecast(facts.plan, facts.works, facts.tools, facts.connection)
        for notice in filter(None, map(note_disk, disks)):
            facts.tools.warnings.add(notice)
        return DiskSpace(disks=disks, is_ignored=facts.plan.job.rules.ignore_space) if disks else None

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Raise TargetError if what is left to load would fill a disk, unless --ignore-space is given.

        Warn if it would take more than half of the free space.
        """
        if self._is_done or load.plan.job.rules.ignore_space:
            return
        for disk in _forecast(load.plan, load.claimed.work, load.tools, connection):
            if disk.is_short:
                raise describe_shortage(disk)
            if (notice := note_disk(disk)) is not None:
                load.tools.warnings.add(notice)
        self._is_done = True


def _forecast(
    plan: LoadPlan, works: Sequence[PlannedObject], tools: LoadTools, connection: Connection
) -> tuple[DiskForecast, ...]:
    return () if tools.guard is None else tuple(tools.guard.forecast(plan, works, connection))
