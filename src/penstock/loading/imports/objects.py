"""The server's route as an attempt's unit: a queue of objects, and sessions in which the server imports them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.core.catalogue.tables import LoadedTable
from penstock.core.connect.connection import Connection
from penstock.core.errors import FileLocation, PenstockError, ServerError, SourceError
from penstock.core.values.accounts import FileOutcome, ReaderSeconds, SessionTotals, Stopwatch
from penstock.core.values.table import TableName
from penstock.ledger.committed import insert_object, lacks_object
from penstock.ledger.ledger import taken_over
from penstock.ledger.values import Claim
from penstock.loading.context import LoadTools
from penstock.loading.copy.copy import CopyFailed, Superseded
from penstock.loading.copy.payload import make_encoder
from penstock.loading.files.encodings import client_encoding
from penstock.loading.imports.server import (
    ImportRow,
    ImportSession,
    S3Object,
    read_imports,
    read_result,
    read_table_bytes,
)
from penstock.loading.read.feed import Abandoned
from penstock.loading.rejects.explain import explain_failure
from penstock.loading.values.objects import CopySpec, PlannedObject
from penstock.loading.values.outcome import FileProgress, LoadProgress
from penstock.loading.values.plan import LoadPlan


@dataclass(slots=True, eq=False)
class ImportedObject:
    """One object that the server imports, and how far the import is. Times are those of the feed's clock."""

    work: PlannedObject
    rows: int = 0
    bytes_read: int = 0
    began_s: float | None = None
    ended_s: float | None = None

    @property
    def size_bytes(self) -> int:
        """Return the size of the object as it is stored, 0 if it is not known."""
        return self.work.source.size_bytes or 0

    def seconds(self, now_s: float) -> float:
        """Return how many seconds the import of the object has taken until `now_s` or until its end.

        The result is 0 if the import has not begun.
        """
        return 0.0 if self.began_s is None else (now_s if self.ended_s is None else self.ended_s) - self.began_s


class ObjectFeed:
    """The queue from which sessions take the objects to import. Any thread may call its methods.

    It has the methods of BlockFeed that LoadAttempt calls. Objects are taken in the order of the job or, if that is not
    required, the largest first. `clock` returns seconds.
    """

    def __init__(
        self, work: Sequence[PlannedObject], *, sessions: int, is_in_job_order: bool, clock: Callable[[], float]
    ) -> None:
        self._objects = [ImportedObject(item) for item in work]
        self._waiting = deque(
            self._objects if is_in_job_order else sorted(self._objects, key=lambda each: -each.size_bytes)
        )
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_held = False
        self.sessions = sessions
        self.failure: BaseException | None = None
        # These stay 0, because no objects are read in this process.
        self.most_readers = 0
        self.reader_seconds = ReaderSeconds()

    def take(self, *, session: int) -> ImportedObject | None:
        """Return the next object for session `session`, or None if no object is left for it.

        Raises Abandoned after `abandon` was called.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._is_held or self.failure is not None or not self._waiting)
            if self.failure is not None:
                raise Abandoned
            if session >= self.sessions or not self._waiting:
                return None
            taken = self._waiting.popleft()
            taken.began_s = self._clock()
            return taken

    def note_progress(self, taken: ImportedObject, *, rows: int | None, bytes_read: int) -> None:
        """Record how many rows of an object the server has copied, and how many of its bytes it has read.

        If `rows` is None, the number of rows is not known and stays as it is.
        """
        with self._lock:
            if taken.ended_s is None:
                taken.rows = taken.rows if rows is None else rows
                taken.bytes_read = min(bytes_read, taken.size_bytes)

    def note_imported(self, taken: ImportedObject, rows: int) -> None:
        """Record that an object is imported and committed, with its number of rows."""
        with self._lock:
            taken.rows, taken.bytes_read, taken.ended_s = rows, taken.size_bytes, self._clock()

    def hold(self, is_held: bool) -> None:
        """Hand out no objects while `is_held`."""
        with self._changed:
            self._is_held = is_held
            self._changed.notify_all()

    def set_sessions(self, count: int) -> None:
        """Let only the first `count` sessions take objects from now on."""
        with self._lock:
            self.sessions = count

    def stop(self) -> None:
        """Hand out no more objects."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def abandon(self, cause: BaseException) -> None:
        """Make `take` raise Abandoned. `cause` is kept in the attribute `failure`, unless an earlier cause is there."""
        with self._changed:
            self.failure = self.failure or cause
            self._changed.notify_all()

    def close(self) -> None:
        """Do nothing, because no thread reads."""

    @property
    def bytes_read(self) -> int:
        """Return how many bytes of the stored objects the server has read so far, as far as this is known."""
        with self._lock:
            return sum(each.bytes_read for each in self._objects)

    def progress(self, *, bytes_copied: int, size_bytes: int | None, elapsed_s: float) -> LoadProgress:
        """Return the progress of the load.

        `bytes_copied` is the size of the imported objects, `size_bytes` the size of all objects, and `elapsed_s` the
        seconds since the load began.
        """
        now_s = self._clock()
        with self._lock:
            begun = [each for each in self._objects if each.began_s is not None]
            return LoadProgress(
                rows=sum(each.rows for each in begun),
                bytes_read=sum(each.bytes_read for each in begun),
                bytes_copied=bytes_copied,
                size_bytes=size_bytes,
                elapsed_s=elapsed_s,
                sessions=self.sessions,
                files=tuple(
                    FileProgress(
                        uri=each.work.source.uri,
                        table=str(each.work.target.table),
                        size_bytes=each.work.source.size_bytes,
                        bytes_read=each.bytes_read,
                        rows=each.rows,
                        seconds=each.seconds(now_s),
                        is_done=each.ended_s is not None,
                    )
                    for each in begun
                ),
                file_count=len(self._objects),
            )

    def outcomes(self) -> tuple[FileOutcome, ...]:
        """Return the rows and seconds of each object, in the order in which the objects were given."""
        now_s = self._clock()
        return tuple(
            FileOutcome(
                uri=each.work.source.uri, table=str(each.work.target.table), rows=each.rows, seconds=each.seconds(now_s)
            )
            for each in self._objects
        )


_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class ObjectSession:
    """Imports objects until none is left. Each is imported and recorded in the ledger in one transaction."""

    # Every object is committed as soon as it is imported.
    has_sealed = False

    def __init__(
        self, number: int, session: ImportSession, feed: ObjectFeed, tools: LoadTools, *, claim: Claim, region: str
    ) -> None:
        self.number = number
        self.session = session
        self.totals = SessionTotals()
        # The object that is imported now, and whether its import was cancelled because it showed no progress.
        self.current: ImportedObject | None = None
        self.is_silent = False
        self._feed = feed
        self._tools = tools
        self._claim = claim
        self._region = region
        self._watch = Stopwatch(tools.clock)

    def run(self) -> None:
        """Import objects until none is left. Raises PenstockError, or Abandoned if the load has failed elsewhere."""
        self._watch.lap()
        while (taken := self._feed.take(session=self.number)) is not None:
            self._import(taken)

    def commit(self) -> None:
        """Do nothing, because every object is already committed."""

    def _import(self, taken: ImportedObject) -> None:
        work, seconds = taken.work, self.totals.seconds
        spec, place = import_spec(work), parse_place(work.source.location, self._region)
        self._guarded(taken, self.session.begin)
        seconds.committing_s += self._watch.lap()
        self._check_version(work, "before")
        seconds.waiting_s += self._watch.lap()
        self.current = taken
        try:
            text = self._guarded(
                taken,
                lambda: self.session.import_object(spec, place, has_header=work.target.dialect.has_header),
            )
        finally:
            self.current = None
        rows = read_result(text)
        seconds.sending_s += self._watch.lap()
        self._check_version(work, "after")
        seconds.waiting_s += self._watch.lap()
        self._tools.warnings.refuse()
        record = insert_object(self._tools.ledger.schema, self._claim, work.number, rows=rows)
        self._guarded(taken, lambda: self.session.commit(record))
        seconds.committing_s += self._watch.lap()
        self.totals.rows_committed += rows
        self.totals.bytes_copied += taken.size_bytes
        self._feed.note_imported(taken, rows)
        _log.info("session %d: imported %s, %d rows", self.number, work.source.uri, rows)

    def _check_version(self, work: PlannedObject, when: str) -> None:
        """Raise SourceError if the object has another version than the listed one.

        The object's rows are rolled back when the session ends.
        """
        head = self._tools.sources.look(work.source)
        listed = work.source.version or ""
        if (head.version or "").strip('"') != listed.strip('"'):
            raise SourceError(
                f'"{work.source.uri}" was replaced while the server imported it',
                detail=f"It was listed with the ETag {listed}; {when} the import it has {head.version}. None of its "
                "rows are stored.",
                hint="Load it again when no process writes to it.",
            )

    def _guarded(self, taken: ImportedObject, act: Callable[[], _T]) -> _T:
        try:
            return act()
        except CopyFailed as failure:
            if lacks_object(failure.report, self._tools.ledger.schema):
                raise taken_over(self._claim.load_id) from failure
            raise self._explain(failure, taken.work) from failure
        except Superseded as exc:
            raise taken_over(self._claim.load_id) from exc

    def _explain(self, failure: CopyFailed, work: PlannedObject) -> PenstockError:
        if self.is_silent:
            return SourceError(
                f'the import of "{work.source.uri}" showed no progress and was cancelled',
                hint="Check that the server has a route to S3: a gateway endpoint for S3 in its VPC, or NAT; and the "
                "outbound rules of its security group. Or use --via client.",
            )
        return explain_failure(
            failure,
            where=FileLocation(file=work.source.uri, line=failure.context.line),
            working_names=work.working_names,
            target=work.target,
            is_in_conflict=self.session.is_in_conflict,
        )


def import_spec(work: PlannedObject) -> CopySpec:
    """Return the table, the columns and the options of the COPY command with which the server imports an object."""
    target = work.target
    return make_encoder(
        target.dialect,
        target.column_map,
        table=target.table if work.landing is None else work.landing,
        encoding=client_encoding(target.dialect.encoding),
    ).spec


def parse_place(location: str, region: str) -> S3Object:
    """Return the object in S3 that an s3:// URL names. `region` is the AWS region of its bucket.

    >>> parse_place("s3://bucket/a/b.csv", "eu-west-1")
    S3Object(bucket='bucket', key='a/b.csv', region='eu-west-1')
    """
    bucket, _, key = location.removeprefix("s3://").partition("/")
    return S3Object(bucket=bucket, key=key, region=region)


# How often the progress of the imports is read from the server.
_LOOK_S = 1.0


class ObjectUnit:
    """The work of an attempt in which the server imports objects.

    It has the methods of BlockUnit that LoadAttempt calls.
    """

    def __init__(
        self,
        plan: LoadPlan,
        tools: LoadTools,
        work: Sequence[PlannedObject],
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
        # What each import had read when it last showed progress, and the time at which that was.
        self._marks: dict[ImportedObject, tuple[tuple[int | None, int | None], float]] = {}
        self._reported: set[ImportedObject] = set()

    def open_session(self, number: int, connection: Connection) -> ObjectSession:
        """Return the session with this number, which imports objects by `connection`."""
        fence = self._tools.ledger.fence(self._claim)
        session = ImportSession(connection, fence=fence, tables=self._tables)
        return ObjectSession(number, session, self.feed, self._tools, claim=self._claim, region=self._plan.route.region)

    def look(self, sessions: Sequence[object]) -> None:
        """Once a second, read the progress of the imports.

        Show a notice of an import without progress, and cancel it later. An import is cancelled only if the server
        shows that it has read nothing. Otherwise it may still be working: after the last row it checks foreign keys and
        runs triggers.
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
        # The server counts decompressed bytes, which show the progress only if the object is not compressed.
        is_plain = taken.work.target.sample.compression == "none"
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
        """Return the progress of the imports, or an empty list if the server has no free connection for this query."""
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
        """Close the session that reads the progress, if one is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
