"""The step that reports how many bytes of pages and of WAL the server wrote for a load, its VACUUM included."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows
from penstock.core.units import format_bytes
from penstock.ledger.targets import find_filled
from penstock.loading.steps.step import RunningLoad, Step
from penstock.loading.values.outcome import LoadOutcome

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
