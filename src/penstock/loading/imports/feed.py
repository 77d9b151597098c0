"""Hands whole objects to sessions, the largest first, and counts what the server has imported."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.loading.reading.feed import Abandoned
from penstock.loading.work import ObjectWork
from penstock.model.load.accounts import ReaderSeconds
from penstock.model.load.details import FileOutcome
from penstock.model.load.outcome import FileProgress, LoadProgress


@dataclass(slots=True, eq=False)
class ImportedObject:
    """One object of the load, and how far its import is. `bytes_read` counts stored bytes."""

    work: ObjectWork
    rows: int = 0
    bytes_read: int = 0
    began_s: float | None = None
    ended_s: float | None = None

    @property
    def size_bytes(self) -> int:
        """Return the object's stored size."""
        return self.work.source.size_bytes or 0

    def seconds(self, now_s: float) -> float:
        """Return the seconds of its import, up to now."""
        return 0.0 if self.began_s is None else (now_s if self.ended_s is None else self.ended_s) - self.began_s


class ObjectFeed:
    """Hands objects to sessions; all methods are safe from any thread.

    It has the methods of BlockFeed that an attempt calls.
    """

    def __init__(
        self, work: Sequence[ObjectWork], *, sessions: int, is_in_job_order: bool, clock: Callable[[], float]
    ) -> None:
        self._objects = [ImportedObject(item) for item in work]
        self._waiting = deque(
            self._objects if is_in_job_order else sorted(self._objects, key=lambda each: -each.size_bytes)
        )
        self._clock = clock
        self._lock = threading.RLock()
        self.sessions = sessions
        self.failure: BaseException | None = None
        # Nothing is read here.
        self.most_readers = 0
        self.reader_seconds = ReaderSeconds()

    def take(self, *, session: int) -> ImportedObject | None:
        """Return the next object, None at the end. Raises Abandoned after `abandon` was called."""
        with self._lock:
            if self.failure is not None:
                raise Abandoned
            if session >= self.sessions or not self._waiting:
                return None
            taken = self._waiting.popleft()
            taken.began_s = self._clock()
            return taken

    def note_progress(self, taken: ImportedObject, *, rows: int | None, bytes_read: int) -> None:
        """Record how far the import of an object is."""
        with self._lock:
            if taken.ended_s is None:
                taken.rows = taken.rows if rows is None else rows
                taken.bytes_read = min(bytes_read, taken.size_bytes)

    def note_imported(self, taken: ImportedObject, rows: int) -> None:
        """Record that an object is imported and committed."""
        with self._lock:
            taken.rows, taken.bytes_read, taken.ended_s = rows, taken.size_bytes, self._clock()

    def set_sessions(self, count: int) -> None:
        """Let only the first `count` sessions take objects from now on."""
        with self._lock:
            self.sessions = count

    def stop(self) -> None:
        """Hand out no more objects."""
        with self._lock:
            self._waiting.clear()

    def abandon(self, cause: BaseException) -> None:
        """Hand out no more objects; the first cause is kept."""
        with self._lock:
            self.failure = self.failure or cause

    def close(self) -> None:
        """Do nothing: no thread reads."""

    @property
    def bytes_read(self) -> int:
        """Return the stored bytes that the server has read so far, as far as they are known."""
        with self._lock:
            return sum(each.bytes_read for each in self._objects)

    def progress(self, *, bytes_copied: int, size_bytes: int | None, elapsed_s: float) -> LoadProgress:
        """Return the progress of the load; the arguments are values that the feed does not know."""
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
        """Return each object's rows and seconds in the order of the job."""
        now_s = self._clock()
        return tuple(
            FileOutcome(
                uri=each.work.source.uri, table=str(each.work.target.table), rows=each.rows, seconds=each.seconds(now_s)
            )
            for each in self._objects
        )
