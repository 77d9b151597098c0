"""Values that a load counts: the time of its sessions and readers, the rows of its files, the reports of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted


@slotted
class FileOutcome:
    """One object's rows and the seconds from its first block to its last."""

    uri: str
    table: str
    rows: int
    seconds: float


def describe_error(error: PenstockError) -> str:
    """Return why an object could not be read: the message and the detail of the error."""
    return error.message if error.detail is None else f"{error.message}: {error.detail}"


@slotted
class LoadDetails:
    """What a recording keeps of a load's plan and outcome. The plan and the steps are rows of a table of text."""

    files: tuple[FileOutcome, ...] = ()
    # The plan: what the load was about to do.
    plan: tuple[tuple[str, ...], ...] = ()
    # The steps: what was done before and after the rows were sent.
    done: tuple[tuple[str, ...], ...] = ()


@slotted
class UnreadableObject:
    """An object that a load could not read to its end, so that it was not loaded."""

    # The name by which the ledger would have the object.
    uri: str
    # The table into which the object would have been loaded.
    table: str
    reason: str


_Seconds = TypeVar("_Seconds", "SessionSeconds", "ReaderSeconds")


class Stopwatch:
    """Measures the seconds between successive calls of `lap`, so that each second is counted once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s = clock()

    def lap(self) -> float:
        """Return the seconds since the last call, or since the stopwatch was created."""
        before_s, self._last_s = self._last_s, self._clock()
        return self._last_s - before_s


def add_seconds(sums: _Seconds, seconds: _Seconds) -> None:
    """Add each field of `seconds` to the same field of `sums`."""
    for each in fields(sums):
        setattr(sums, each.name, getattr(sums, each.name) + getattr(seconds, each.name))


@dataclass(slots=True, kw_only=True)
class SessionSeconds:
    """Seconds of sessions that send rows. Each second of a session is counted in one field."""

    # Seconds of waiting for a block to send.
    waiting_s: float = 0.0
    # Seconds of making COPY data.
    encoding_s: float = 0.0
    # Seconds of passing COPY data to the server, including the wait until the server takes it.
    sending_s: float = 0.0
    # Seconds of waiting for the answers at the end of COPY commands.
    finishing_s: float = 0.0
    # Seconds of waiting for COMMIT.
    committing_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Return the seconds that were not spent waiting for blocks."""
        return self.encoding_s + self.sending_s + self.finishing_s + self.committing_s


@dataclass(slots=True)
class SessionTotals:
    """What a session did. The ledger says which of the session's rows are committed for good."""

    # Bytes of COPY data; stored bytes if the server imported the objects.
    bytes_copied: int = 0
    seconds: SessionSeconds = field(default_factory=SessionSeconds)
    rows_committed: int = 0


@dataclass(slots=True, kw_only=True)
class ReaderSeconds:
    """Seconds of readers. Each second of a reader is counted in one field."""

    # Seconds of waiting for the source's bytes.
    reading_s: float = 0.0
    # Seconds of decompressing the source's bytes.
    decompressing_s: float = 0.0
    # Seconds of finding the ends of records.
    cutting_s: float = 0.0
    # Seconds of waiting for room in the queue to the sessions.
    queueing_s: float = 0.0


@slotted
class BackendIo:
    """What the server counts of the sessions that send rows: I/O of tables and indexes, and WAL.

    A field is None if the server does not count it, such as I/O before PostgreSQL 16.
    """

    # Whether these sessions alone are counted (PostgreSQL 18 and later). If not, the I/O is that of all clients, and
    # the WAL that of the whole server, while rows were sent.
    is_exact: bool
    read_bytes: int | None
    write_bytes: int | None
    extend_bytes: int | None
    # The time of this I/O, None without track_io_timing.
    io_s: float | None
    wal_bytes: int | None
    # The number of full-page images.
    wal_images: int | None
    # The WAL of full-page images, compressed if wal_compression is on. PostgreSQL 19 and later count it.
    wal_image_bytes: int | None = None

    def add(self, other: BackendIo, *, sign: int = 1) -> BackendIo:
        """Return the sum of each field, or with sign -1 the difference; None if a field is None in either."""
        sums: dict[str, Any] = {}
        for name in (each.name for each in fields(self) if each.name != "is_exact"):
            own, others = getattr(self, name), getattr(other, name)
            sums[name] = None if own is None or others is None else own + sign * others
        return replace(self, **sums)


@slotted
class LoadAccounts:
    """What one load has counted: the seconds of its sessions, readers and steps, and the server's I/O."""

    # The time of the whole load.
    elapsed_s: float
    # The time from the start of the first session to the commit of the last batch.
    rows_s: float
    # The sum over all sessions.
    sessions: SessionSeconds
    session_count: int
    # The sum over all readers.
    readers: ReaderSeconds
    reader_count: int
    # The CPU time of this process.
    client_cpu_s: float
    # How many processors this process may use.
    client_cpus: int
    # The stored (compressed) bytes of the objects.
    bytes_read: int
    # Bytes of COPY data.
    bytes_copied: int
    rows: int
    # The time of each step before and after the rows, by the step's name.
    steps_s: Mapping[str, float] = field(default_factory=dict)
    # What the server counted while the attempts of the load sent rows. None if it could not be read.
    io: BackendIo | None = None


@slotted
class LoadConditions:
    """The properties of tables and sessions that cost time for each row of a load. Names are as SQL writes them."""

    indexes: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()
    # Why the load has this number of sessions.
    sessions_why: str = ""
    # Whether the server imports the objects from S3 itself.
    is_import: bool = False
    # The indexes and keys that were kept, and that --indexes rebuild would drop.
    droppable: tuple[str, ...] = ()
    # What the user can still change: keys of CHOICES in diagnose/values.py.
    choices: tuple[str, ...] = ()


@slotted
class LoadCounts:
    """What a recording keeps of a load, so that it can be diagnosed later: its counts and its conditions."""

    accounts: LoadAccounts
    setting: LoadConditions
    details: LoadDetails | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table of text, whose columns are aligned when they are shown."""

    rows: Sequence[Sequence[str]]
    # The alignment of each column: "<" for the left, ">" for the right.
    align: str


class StepPart(Protocol):
    """What one step of a load will do or did. --json prints the fields; other output shows the description."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def describe(self) -> Sequence[str | Rows]:
        """Return the lines to show; no lines if the step does nothing."""


class PlanPart(StepPart, Protocol):
    """The part of a plan that comes from one step. It may be a reason why the load would not begin."""

    @property
    def is_refusing(self) -> bool:
        """Whether the load would not begin, because of what the step has found."""
        return False


@slotted
class StepProgress:
    """The progress of one step after the last row, such as the build of an index."""

    name: str
    phase: str
    # The part of the current phase that is done, from 0 to 1; None if the server does not report it.
    fraction: float | None
