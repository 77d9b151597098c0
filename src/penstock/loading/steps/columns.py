"""Four steps that change nothing.

They report changed columns, count rows, check the space on disks, and report what the server wrote for the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows
from penstock.core.units import format_bytes
from penstock.core.values.accounts import Rows
from penstock.ledger.committed import read_coverage
from penstock.ledger.rejects import RejectStore
from penstock.ledger.targets import find_filled
from penstock.loading.context import LoadTools
from penstock.loading.plan.space import DiskSpace, describe_shortage, note_disk
from penstock.loading.steps.step import PlanFacts, RunningLoad, Step
from penstock.loading.values.outcome import LoadOutcome
from penstock.loading.values.plan import LoadPlan
from penstock.loading.values.types import ColumnChange
from penstock.loading.values.work import PlannedObject, all_objects

if TYPE_CHECKING:
    from penstock.core.catalogue.catalog import DiskForecast


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

        Return None if nothing is known of the disks, for example because the server runs on another machine.
        """
        disks = _forecast(facts.plan, all_objects(facts.plan.targets), facts.tools, facts.connection)
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


# The first version with pg_stat_io, which also counts the pages that the checkpointer and other processes write.
_SINCE_MAJOR = 16


@slotted
class ServerPages:
    """The row of server_pages.sql: what all processes of the server have read and written since `reset_at`."""

    read_bytes: int
    written_bytes: int
    wal_bytes: int
    # The pages of the filled tables and of their partitions, as their last VACUUM counted them. Before PostgreSQL 18,
    # `frozen_pages` is None.
    pages: int
    frozen_pages: int | None
    # When the counters were last set to 0, by a user or after a crash.
    reset_at: datetime | None


@slotted
class WrittenPages:
    """What all processes of the server read and wrote from the load's beginning to the end of its VACUUM."""

    read_bytes: int
    written_bytes: int
    wal_bytes: int
    # The bytes of rows that the load sent.
    sent_bytes: int
    # The percentage of the filled tables' pages that are frozen, None before PostgreSQL 18.
    frozen_percent: float | None

    def describe(self) -> Sequence[str]:
        """Return a line that says how many bytes of pages and of WAL were written, in all and for each MB of rows."""
        written, wal = (size / self.sent_bytes for size in (self.written_bytes, self.wal_bytes))
        frozen = "" if self.frozen_percent is None else f"; {self.frozen_percent:.0f} % of the pages are frozen"
        what = f"the server wrote {format_bytes(self.written_bytes)} of pages and {format_bytes(self.wal_bytes)} of WAL"
        return [f"{what}: {written:.1f} MB and {wal:.1f} MB for each MB of rows{frozen}"]


class PageCounts(Step):
    """Counts what the server writes during a load, if the load is large and this process alone runs all of it."""

    name = "pages"

    def __init__(self) -> None:
        self._before: ServerPages | None = None

    def before(self, load: RunningLoad, connection: Connection) -> None:
        """Read the server's counters before the first attempt. Ignore an error."""
        size_bytes, least_bytes = load.plan.size_bytes, load.plan.tuning.least_verdict_bytes
        is_small = size_bytes is not None and size_bytes < least_bytes
        if self._before is None and not is_small and load.tools.server_major >= _SINCE_MAJOR:
            with suppress(PenstockError):
                # Go on without the counters after an error. A managed service may hide these views from its users. If
                # the connection is lost, the next statement raises the error.
                self._before = _read_pages(connection, ())

    def conclude(self, load: RunningLoad, outcome: LoadOutcome) -> LoadOutcome:
        """Return the outcome with the growth of the counters since `before`. The load's VACUUM has ended now.

        The outcome is returned unchanged if the counters were reset or not read. An error becomes a warning, because
        the load is complete.
        """
        is_whole = not load.plan.job.rules.join and not load.claimed.claim.is_resumed
        if self._before is None or not is_whole or not outcome.bytes_copied:
            return outcome

        def read(connection: Connection) -> ServerPages:
            return _read_pages(connection, find_filled(connection, load.tools.ledger.schema, load.load_id))

        try:
            after = load.at_end(read)
        except PenstockError as error:
            load.tools.warnings.warn("upkeep", f"what the server wrote was not counted: {error.message}")
            return outcome
        if after.reset_at != self._before.reset_at:
            return outcome
        is_counted = after.frozen_pages is not None and after.pages > 0
        written = WrittenPages(
            read_bytes=after.read_bytes - self._before.read_bytes,
            written_bytes=after.written_bytes - self._before.written_bytes,
            wal_bytes=after.wal_bytes - self._before.wal_bytes,
            sent_bytes=outcome.bytes_copied,
            frozen_percent=100 * (after.frozen_pages or 0) / after.pages if is_counted else None,
        )
        return outcome.with_part(self.name, written)


def _read_pages(connection: Connection, oids: Sequence[int]) -> ServerPages:
    with translate_errors("reading what the server has written"):
        (found,) = fetch_rows(connection, "loading/server_pages", ServerPages, oids=list(oids))
    return found
