"""Hands blocks of objects to sessions: readers put blocks into bounded queues, and sessions take any that is ready.

One thread reads an object. Another object is opened only if sessions would otherwise wait, so that all sessions are
busy with a single file, and with many small files. Only the queues take memory, so the memory does not grow with the
files.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.units import MIB
from penstock.core.values.accounts import FileOutcome, ReaderSeconds, Stopwatch, add_seconds
from penstock.core.values.source import SourceObject
from penstock.core.values.table import TableName
from penstock.ledger.rejects import RecordForm
from penstock.loading.copy.encoded import EncodedBlocks
from penstock.loading.copy.payload import Encoder
from penstock.loading.files.listing import is_remote
from penstock.loading.formats.format import ObjectReader, Opened
from penstock.loading.values.objects import Block, CopySpec, PlannedObject
from penstock.loading.values.outcome import FileProgress, LoadProgress
from penstock.loading.values.plan import TargetPlan

_log = logging.getLogger(__name__)

# How many blocks of an object are queued. At 800 MB/s, 8 blocks of 512 KiB last 5 ms, which is how long a reader may
# wait for the interpreter lock.
_QUEUE_BLOCKS = 8

# How many small objects are read at the same time. For a small object in an object store, most of the time is the wait
# for the first byte (S3: 30 to 200 ms; a MiB takes some 12 ms more).
_SMALL_READERS = 8
_SMALL_BYTES = MIB

# A host claims more objects when the objects that it has will last for less than this time. A claim takes less time
# than this. If sessions wait although objects are left, the host claims at most once in this time, so that hosts that
# began at the same time get objects too.
_CLAIM_AHEAD_S = 0.5

# The least time over which a rate is measured, because the first megabytes only fill the buffers of sockets.
_LEAST_RATE_S = 0.5

# How long to wait for readers to end after the load has failed. A reader that hangs is left alone.
_READER_PATIENCE_S = 1.0


class Abandoned(Exception):
    """Raised in a session's or reader's thread if the load has failed in another thread, so that this one stops."""


class _Stopped(Exception):
    """`BlockFeed.stop` was called, so sessions take no more blocks. Nothing has failed."""


class NothingReady(Exception):
    """Raised by `BlockFeed.take` if no block was ready within `patience_s`."""


@dataclass(slots=True)
class Reading:
    """What belongs to an open object: the encoder that writes its records for COPY, and how its records are read.

    `encoded` encodes whole blocks in format binary or csv before they are sent. It is None if all are sent as text.
    """

    encoder: Encoder
    form: RecordForm
    encoded: EncodedBlocks | None = None


@dataclass(slots=True, eq=False)
class OpenObject:
    """One object that a reader thread reads, and its progress.

    The properties `encoder`, `form`, `encoded` and `spec` raise RuntimeError before the object has its first block.
    """

    work: PlannedObject
    reading: Reading | None = None
    stream: ObjectReader | None = None
    queue: deque[Block] = field(default_factory=deque)
    # Whether the reader has put the last block into the queue.
    is_read: bool = False
    # The stored (compressed) bytes that were read.
    bytes_read: int = 0
    # The rows that were sent and not suppressed or rejected, as far as this is known.
    rows: int = 0
    # The bytes of text that were put into the queue.
    text_read: int = 0
    # The bytes of text that were taken from the queue.
    text_taken: int = 0
    # Blocks that sessions have taken and not sent yet.
    in_flight: int = 0
    # When the first block was taken and when a block was last sent, on the feed's clock.
    began_s: float | None = None
    ended_s: float | None = None

    @property
    def encoder(self) -> Encoder:
        """Return the encoder that writes the object's records for COPY."""
        return self._opened().encoder

    @property
    def form(self) -> RecordForm:
        """Return how the object's records are read: their dialect, columns and encoding."""
        return self._opened().form

    @property
    def encoded(self) -> EncodedBlocks | None:
        """Return what encodes the object's blocks in another format of COPY, None if they are sent as text."""
        encoded = self._opened().encoded
        return encoded if encoded is not None and encoded.is_active else None

    @property
    def spec(self) -> CopySpec:
        """Return the spec of the COPY command that the next block probably needs."""
        encoded = self.encoded
        return self.encoder.spec if encoded is None or not encoded.is_expected else encoded.spec

    def _opened(self) -> Reading:
        if self.reading is None:
            raise RuntimeError("an object has blocks before it is opened")
        return self.reading

    @property
    def target(self) -> TargetPlan:
        """Return the plan of the object's table."""
        return self.work.target

    @property
    def source(self) -> SourceObject:
        """Return the object as it was listed."""
        return self.work.source

    @property
    def is_drained(self) -> bool:
        """Return whether the object is read to its end and sessions have taken all of its blocks."""
        return self.is_read and not self.queue

    def seconds(self, now_s: float) -> float:
        """Return the seconds from when a session took the first block until the last block was sent, or until `now_s`.

        `now_s` is the present time of the feed's clock. The result is 0 if no block was taken.
        """
        if self.began_s is None:
            return 0.0
        return (self.ended_s if self.ended_s is not None and self.is_drained else now_s) - self.began_s


OpenBlocks: TypeAlias = "Callable[[PlannedObject], Opened]"


# Returns what encodes an object's blocks, None if they are sent as text.
OpenEncoded = Callable[[PlannedObject, Encoder, RecordForm], EncodedBlocks | None]


@slotted
class FeedPlan:
    """How a feed reads its objects and shares their blocks."""

    # How many objects are read at a time, at most.
    reader_limit: int
    # How many sessions take blocks at the start.
    sessions: int
    # Whether objects are read in the order of the job, instead of the largest first.
    is_in_job_order: bool = False
    # Whether one session gets all blocks of a table, and another table only after these blocks are sent.
    is_by_table: bool = False
    # Whether several hosts share the load's objects, so that more objects may be added until `end` is called.
    is_open: bool = False
    # How many bytes of objects are added to an open feed at a time, at least.
    least_claim_bytes: int = 0


class BlockFeed:
    """Reads objects in threads, and hands their blocks to sessions. Any thread may call its methods.

    `take` returns None when all blocks are taken, and raises Abandoned after `abandon` was called. The attribute
    `failure` is the first exception that `abandon` was given. If `on_object_failed` is given, it is called with an
    object that cannot be read further and its error. Otherwise such an object ends the load.
    """

    def __init__(
        self,
        work: Sequence[PlannedObject],
        open_blocks: OpenBlocks,
        plan: FeedPlan,
        *,
        on_object_failed: Callable[[OpenObject, PenstockError], None] | None = None,
        open_encoded: OpenEncoded | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._objects = [OpenObject(item) for item in work]
        # The objects that are not opened yet. Unless the job's order is kept, the largest come first, so that the end
        # of the load does not wait for the slow decompression of one big file.
        self._unopened = deque(self._objects if plan.is_in_job_order else sorted(self._objects, key=_size_rank))
        # The opened objects of which some blocks are still to be sent. `_done` has the final progress of the objects
        # that are sent.
        self._active: list[OpenObject] = []
        self._done: list[FileProgress] = []
        self._done_bytes = 0
        self._open_blocks = open_blocks
        self._open_encoded = open_encoded
        self._on_object_failed = on_object_failed
        self._reader_limit = plan.reader_limit
        self._is_in_job_order = plan.is_in_job_order
        self._is_by_table = plan.is_by_table
        # The session that sends each table's blocks, if one sends all of them.
        self._senders: dict[TableName, int] = {}
        self._readers = 0
        self.most_readers = 0
        self.reader_seconds = ReaderSeconds()
        self._clock = clock
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._threads: set[threading.Thread] = set()
        self.rows = 0
        self.sessions = plan.sessions
        self.failure: BaseException | None = None
        self._is_stopped = False
        self.is_held = False
        self._is_open, self._is_joint = plan.is_open, plan.is_open
        self._least_claim_bytes = plan.least_claim_bytes
        self._is_hungry = False
        self._began_s = self._added_s = clock()

    def wanted_bytes(self) -> int:
        """Return how many stored bytes of objects this host should claim and `add` now, if several hosts share a load.

        Return 0 if the objects that it has will last for more than _CLAIM_AHEAD_S at the present rate.
        """
        with self._changed:
            if not self._is_open or self._is_stopped or self.failure is not None:
                return 0
            now_s = self._clock()
            taken = self._done_bytes + sum(map(_bytes_taken, self._active))
            rate = taken / max(now_s - self._began_s, _LEAST_RATE_S)
            left = sum(map(_bytes_left, (*self._active, *self._unopened)))
            is_starving = self._is_hungry and now_s - self._added_s > _CLAIM_AHEAD_S
            if left > rate * _CLAIM_AHEAD_S and not is_starving:
                return 0
            self._is_hungry = False
            return max(self._least_claim_bytes, int(rate * _CLAIM_AHEAD_S))

    @property
    def unsent(self) -> int:
        """Return how many objects have blocks that no session has taken yet, or are not read to their end."""
        with self._changed:
            return len(self._unopened) + sum(not opened.is_drained for opened in self._active)

    def add(self, work: Iterable[PlannedObject]) -> None:
        """Add objects that this host has claimed. Only a feed whose plan `is_open` may be given more objects."""
        with self._changed:
            added = [OpenObject(item) for item in work]
            self._objects += added
            self._unopened += sorted(added, key=_size_rank)
            self._added_s = self._clock()
            self._changed.notify_all()

    def end(self) -> None:
        """Declare that no more objects will be added. Sessions end when all objects are sent."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def take(
        self, *, session: int, prefer: CopySpec | None, patience_s: float | None = None
    ) -> tuple[OpenObject, Block] | None:
        """Wait for a block, and return it with its object. Return None when there is nothing left to take.

        Prefer a block that the COPY command `prefer` can carry. A session whose number `session`, from 0, is not below
        the present number of sessions gets no blocks: it waits until the end or, if several hosts load, gets None so
        that they can use its connection. Raises NothingReady if no block is ready within `patience_s` seconds, and
        Abandoned.
        """
        ends_s = None if patience_s is None else time.monotonic() + patience_s
        with self._changed:
            while True:
                # A session that has begun to send a table sends all of it, even if fewer sessions may take blocks now.
                is_present = session < self.sessions or session in self._senders.values()
                if self.failure is not None:
                    raise Abandoned
                if self._is_stopped:
                    return None
                if is_present and not self.is_held and (ready := self._choose(prefer, session)) is not None:
                    return self._pop(ready)
                if self._is_over(session) or (self._is_joint and session >= self.sessions):
                    return None
                if is_present:
                    self._open_another(session)
                left_s = None if ends_s is None else ends_s - time.monotonic()
                if left_s is not None and (left_s <= 0 or self.is_held):
                    raise NothingReady
                self._changed.wait(left_s)

    def hold(self, is_held: bool) -> None:
        """Hand out no blocks to sessions while `is_held`; sessions that have sent some commit them."""
        with self._changed:
            if is_held != self.is_held:
                self.is_held = is_held
                self._changed.notify_all()

    def set_sessions(self, count: int) -> None:
        """Let only the sessions with numbers below `count` take blocks from now on."""
        with self._changed:
            self.sessions = count
            self._changed.notify_all()

    def note_sent(self, opened: OpenObject, rows: int) -> None:
        """Count the rows of a block of `opened`. Call this once for each block, after it was sent to the server."""
        with self._changed:
            opened.rows += rows
            self.rows += rows
            opened.ended_s = self._clock()
            opened.in_flight -= 1
            self._retire(opened)

    def note_suppressed(self, opened: OpenObject, rows: int) -> None:
        """Subtract rows of `opened` that were sent but not stored: a trigger skipped them, or they were rejected."""
        with self._changed:
            opened.rows -= rows
            self.rows -= rows

    def discard(self, opened: OpenObject) -> bool:
        """Remove the blocks of an object that cannot be read to its end. Return whether this was possible.

        It is not if a session has already taken one of them. Then no block is removed.
        """
        with self._changed:
            if opened.began_s is None:
                opened.queue.clear()
            return opened.began_s is None

    @property
    def is_ending(self) -> bool:
        """Return whether `abandon` or `stop` was called. In both cases readers stop reading."""
        return self.failure is not None or self._is_stopped

    def stop(self) -> None:
        """Hand out no more blocks. Sessions finish the blocks that they have taken, and readers end."""
        with self._changed:
            self._is_stopped = True
            for opened in self._active:
                opened.queue.clear()
            self._changed.notify_all()

    def abandon(self, cause: BaseException) -> None:
        """Make all readers and sessions stop. The first `cause` that is given becomes the attribute `failure`."""
        with self._changed:
            if self.failure is None:
                self.failure = cause
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until the readers have ended and closed their streams.

        If the load has failed or was stopped, do not wait for a reader that hangs, for example on a silent network.
        That reader ends by itself or with the process.
        """
        ends_s = time.monotonic() + _READER_PATIENCE_S
        with self._changed:
            threads = list(self._threads)
        for thread in threads:
            has_ended_well = self.failure is None and not self._is_stopped
            thread.join(None if has_ended_well else max(0.0, ends_s - time.monotonic()))

    def progress(self, *, bytes_copied: int, size_bytes: int | None, elapsed_s: float) -> LoadProgress:
        """Return the progress of the load. The arguments become its fields of the same names.

        `bytes_copied` is how many bytes were sent by COPY, `size_bytes` the stored size of all objects, `elapsed_s` the
        seconds since the load began.
        """
        with self._changed:
            return LoadProgress(
                rows=self.rows,
                bytes_read=self.bytes_read,
                bytes_copied=bytes_copied,
                size_bytes=size_bytes,
                elapsed_s=elapsed_s,
                sessions=self.sessions,
                files=(*self._done, *(self._describe(opened) for opened in self._active)),
                file_count=len(self._objects),
            )

    def outcomes(self) -> tuple[FileOutcome, ...]:
        """Return the rows and the seconds of each object, in the order of the job."""
        now_s = self._clock()
        return tuple(
            FileOutcome(
                uri=opened.source.uri,
                table=str(opened.target.table),
                rows=opened.rows,
                seconds=opened.seconds(now_s),
            )
            for opened in self._objects
        )

    @property
    def bytes_read(self) -> int:
        """Return how many stored (compressed) bytes of all objects were read so far."""
        with self._changed:
            return self._done_bytes + sum(map(_bytes_read, self._active))

    # ---------------------------------------------------------------- inside, with the lock held

    def _choose(self, prefer: CopySpec | None, session: int) -> OpenObject | None:
        ready = [opened for opened in self._active if opened.queue and self._may_send(opened, session)]
        if not ready:
            return None
        same = (opened for opened in ready if opened.spec == prefer)
        return next(same, ready[0])

    def _pop(self, opened: OpenObject) -> tuple[OpenObject, Block]:
        if opened.began_s is None:
            opened.began_s = self._clock()
        block = opened.queue.popleft()
        opened.text_taken += block.size_bytes
        opened.in_flight += 1
        self._changed.notify_all()
        return opened, block

    def _may_send(self, opened: OpenObject, session: int) -> bool:
        """Whether no other session sends the table of an object, and the session itself sends no other table."""
        if not self._is_by_table:
            return True
        sender = self._senders.get(opened.target.table)
        if sender is not None:
            return sender == session
        return not any(self._senders.get(other.target.table) == session for other in (*self._active, *self._unopened))

    def _is_over(self, session: int) -> bool:
        """Whether nothing is left that a session could send."""
        if self._is_by_table:
            left = [*(opened for opened in self._active if not opened.is_drained), *self._unopened]
            is_empty = all(self._senders.get(opened.target.table, session) != session for opened in left)
        else:
            is_empty = not self._is_open and not self._unopened and all(opened.is_drained for opened in self._active)
        return self._is_stopped or is_empty

    def _retire(self, opened: OpenObject) -> None:
        """If all blocks of an object have been sent, move it to the objects that are done."""
        if opened.is_drained and not opened.in_flight and opened in self._active:
            self._active.remove(opened)
            self._done.append(self._describe(opened))
            self._done_bytes += opened.bytes_read

    def _describe(self, opened: OpenObject) -> FileProgress:
        return FileProgress(
            uri=opened.source.uri,
            table=str(opened.target.table),
            size_bytes=opened.source.size_bytes,
            bytes_read=_bytes_read(opened),
            rows=opened.rows,
            seconds=opened.seconds(self._clock()),
            is_done=opened.is_drained,
        )

    def _open_another(self, session: int) -> None:
        is_enough = self._readers >= self._present_limit()
        if is_enough and not (self._is_by_table and self._is_idle(session)):
            return
        self._is_hungry |= not self._unopened
        if (opened := self._next_object(session)) is not None:
            self._readers += 1
            self.most_readers = max(self.most_readers, self._readers)
            # Use a daemon thread, so that the process can end while a source is silent.
            thread = threading.Thread(target=self._run_reader, args=(opened,), name="penstock-read", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _present_limit(self) -> int:
        """Return how many readers there may be, including one for the next object."""
        is_small = bool(self._unopened) and _is_small_and_remote(self._unopened[0].source)
        return max(self._reader_limit, _SMALL_READERS) if is_small else self._reader_limit

    def _is_idle(self, session: int) -> bool:
        """Whether a session sends no table that has an open object."""
        return not any(self._senders.get(opened.target.table) == session for opened in self._active)

    def _next_object(self, session: int | None = None) -> OpenObject | None:
        """Return the object to open next, or None. In job order, it is None until all blocks of open ones are taken."""
        is_held = self._is_in_job_order and any(not opened.is_drained for opened in self._active)
        if self.failure is not None or self._is_stopped or not self._unopened or is_held:
            return None
        if not self._is_by_table:
            opened = self._unopened.popleft()
        elif session is None:
            return None
        else:
            mine = (opened for opened in self._unopened if self._may_send(opened, session))
            if (found := next(mine, None)) is None:
                return None
            opened = found
            self._unopened.remove(opened)
            self._senders[opened.target.table] = session
        self._active.append(opened)
        return opened

    # ---------------------------------------------------------------- reader threads

    def _run_reader(self, first: OpenObject) -> None:
        opened: OpenObject | None = first
        try:
            while opened is not None:
                self._read(opened)
                with self._changed:
                    # Read small objects one after another. Once enough is queued, end; `take` starts another reader.
                    is_enough = sum(len(other.queue) for other in self._active) >= _QUEUE_BLOCKS
                    opened = None if is_enough else self._next_object()
        except _Stopped:
            _log.debug("stopped reading %s", first.source.uri)
        except BaseException as failure:  # noqa: BLE001 (whatever ends a reader ends the load, which raises it)
            self.abandon(failure)
        with self._changed:
            self._readers -= 1
            self._threads.discard(threading.current_thread())
            self._changed.notify_all()

    def _read(self, opened: OpenObject) -> None:
        try:
            self._read_blocks(opened)
        except PenstockError as error:
            if self._on_object_failed is None:
                raise
            self._on_object_failed(opened, error)
        with self._changed:
            opened.stream = None
            opened.is_read = True
            self._retire(opened)
            self._changed.notify_all()

    def _read_blocks(self, opened: OpenObject) -> None:
        watch = Stopwatch(self._clock)
        stream, blocks, encoder, form = self._open_blocks(opened.work)
        spent = ReaderSeconds()
        making_s = 0.0
        with stream:
            encoded = None if self._open_encoded is None else self._open_encoded(opened.work, encoder, form)
            opened.stream, opened.reading = stream, Reading(encoder, form, encoded)
            try:
                for block in blocks:
                    making_s += watch.lap()
                    self._put(opened, block)
                    spent.queueing_s += watch.lap()
            finally:
                making_s += watch.lap()
                spent.reading_s = stream.reading_s
                spent.decompressing_s = max(0.0, stream.text_s - stream.reading_s)
                spent.cutting_s = max(0.0, making_s - stream.text_s)
                with self.lock:
                    add_seconds(self.reader_seconds, spent)
            opened.bytes_read = stream.bytes_read

    def _put(self, opened: OpenObject, block: Block) -> None:
        with self._changed:
            while len(opened.queue) >= _QUEUE_BLOCKS and self.failure is None and not self._is_stopped:
                self._changed.wait()
            if self.failure is not None:
                raise Abandoned
            if self._is_stopped:
                raise _Stopped
            opened.queue.append(block)
            opened.text_read += block.size_bytes
            self._changed.notify_all()


def _bytes_read(opened: OpenObject) -> int:
    stream = opened.stream
    return opened.bytes_read if stream is None else stream.bytes_read


def _bytes_taken(opened: OpenObject) -> float:
    """Return how many stored bytes of an object sessions have taken, estimated from the share of its text."""
    return _bytes_read(opened) * opened.text_taken / opened.text_read if opened.text_read else 0.0


def _bytes_left(opened: OpenObject) -> float:
    """Return how many stored bytes of an object are left to take. If its size is not known, return a large number."""
    if opened.is_drained:
        return 0.0
    size_bytes = opened.source.size_bytes
    return float("inf") if size_bytes is None else max(0.0, size_bytes - _bytes_taken(opened))


def _size_rank(opened: OpenObject) -> tuple[bool, int]:
    size_bytes = opened.source.size_bytes
    return size_bytes is not None, -(size_bytes or 0)


def _is_small_and_remote(source: SourceObject) -> bool:
    return source.size_bytes is not None and source.size_bytes <= _SMALL_BYTES and is_remote(source.location)


def reader_limit(objects: int | None, *, sessions: int) -> int:
    """Return how many objects may be read at the same time: one for each session, because reading may be slow.

    The result is at least 2, but not greater than `objects`, the number of objects, which is None if it is not known.
    """
    limit = max(2, sessions)
    return limit if objects is None else max(1, min(objects, limit))
