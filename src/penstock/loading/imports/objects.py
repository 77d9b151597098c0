"""The server's route as an attempt's unit: objects instead of blocks, and a watch on imports that show no progress."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import ServerError
from penstock.loading.context import LoadTools
from penstock.loading.imports.feed import ImportedObject, ObjectFeed
from penstock.loading.imports.session import ObjectSession
from penstock.loading.work import ObjectWork
from penstock.model.load.ledger import Claim
from penstock.model.load.plan import LoadPlan
from penstock.model.server.table import TableName
from penstock.server.connect.connection import Connection
from penstock.server.imports.look import ImportRow, read_imports, read_table_bytes
from penstock.server.imports.session import ImportSession

if TYPE_CHECKING:
    from penstock.server.table.identity import LoadedTable

_log = logging.getLogger(__name__)

# How often the server is asked how far the imports are.
_LOOK_S = 1.0


class ObjectUnit:
    """Has the server import objects; it has the methods of BlockUnit that an attempt calls."""

    def __init__(
        self,
        plan: LoadPlan,
        tools: LoadTools,
        work: Sequence[ObjectWork],
        *,
        claim: Claim,
        tables: Mapping[TableName, LoadedTable],
        sessions: int,
    ) -> None:
        self._plan = plan
        self.work = work
        self._claim = claim
        self._tables = tables
        self._tools = tools
        self.feed = ObjectFeed(work, sessions=sessions, is_in_job_order=plan.is_in_job_order, clock=tools.clock)
        self._connection: Connection | None = None
        self._looked_s = tools.clock()
        self._oids = sorted({table.oid for table in tables.values()})
        self._table_bytes = -1
        # What each import had read when it last showed progress, and when that was.
        self._marks: dict[ImportedObject, tuple[tuple[int | None, int | None], float]] = {}
        self._reported: set[ImportedObject] = set()

    def open_session(self, number: int, connection: Connection) -> ObjectSession:
        """Return session `number` on a connection."""
        fence = self._tools.ledger.fence(self._claim)
        session = ImportSession(connection, fence=fence, tables=self._tables)
        return ObjectSession(number, session, self.feed, self._tools, claim=self._claim, region=self._plan.route.region)

    def look(self, sessions: Sequence[object]) -> None:
        """Once a second, read how far imports are; report an import without progress, and later cancel it.

        It is cancelled only if the server shows that it has read nothing. Otherwise it may be at work all the same: it
        checks foreign keys and runs triggers behind the last row.
        """
        now_s = self._tools.clock()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        running = [each for each in sessions if isinstance(each, ObjectSession) and each.current is not None]
        if not running:
            return
        rows = {row.pid: row for row in self._read([each.session.backend_pid for each in running])}
        has_grown = self._has_grown()
        for each in running:
            row, taken = rows.get(each.session.backend_pid), each.current
            if row is not None and taken is not None:
                self._note(each, taken, row, now_s=now_s, has_grown=has_grown)

    def _note(
        self, running: ObjectSession, taken: ImportedObject, row: ImportRow, *, now_s: float, has_grown: bool
    ) -> None:
        # Bytes are decompressed ones: they say how much is read of an object that is not compressed.
        is_plain = taken.work.target.sample_compression == "none"
        self.feed.note_progress(taken, rows=row.rows, bytes_read=(row.bytes_read or 0) if is_plain else 0)
        is_shown, state = row.rows is not None, (row.rows, row.bytes_read)
        before, since_s = self._marks.get(taken, (None, now_s))
        if state != before or row.is_blocked or (not is_shown and has_grown):
            self._marks[taken] = (state, now_s)
            return
        silent_s, tuning = now_s - since_s, self._plan.tuning
        if silent_s >= tuning.import_silence_s and taken not in self._reported:
            self._reported.add(taken)
            reason = "check that the server has a route to S3 (a gateway endpoint in its VPC, or NAT)"
            if row.bytes_read:
                reason = "it has read rows, and may be checking foreign keys or running triggers"
            self._tools.notice(
                f'the import of "{taken.work.source.uri}" shows no progress since {silent_s:.0f} s: {reason}'
            )
        if is_shown and not row.bytes_read and silent_s >= tuning.import_patience_s:
            running.is_silent = True
            running.session.cancel()

    def _read(self, pids: Sequence[int]) -> list[ImportRow]:
        """Return how far the imports are, or nothing if the server has no free connection for this."""
        try:
            if self._connection is None:
                self._connection = self._tools.connect.connect(label="imports")
            return read_imports(self._connection, pids)
        except ServerError as error:
            _log.info("cannot read the progress of imports: %s", error.message)
            self.close()
            return []

    def _has_grown(self) -> bool:
        before = self._table_bytes
        if self._connection is not None:
            try:
                self._table_bytes = read_table_bytes(self._connection, self._oids)
            except ServerError as error:
                _log.info("cannot read the size of the tables: %s", error.message)
                self.close()
        return self._table_bytes != before

    def close(self) -> None:
        """Close the session that looks, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
