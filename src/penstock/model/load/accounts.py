"""Where the time of a load's sessions and readers went, and their I/O: counted, not sampled."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Mapping,
)
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from penstock.frozen import frozen
from penstock.model.load.details import LoadDetails

_Seconds = TypeVar("_Seconds", "SessionSeconds", "ReaderSeconds")


class Stopwatch:
    """Returns the seconds since it was asked last, so that each second is counted once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_s = clock()

    def lap(self) -> float:
        """Return the seconds since the last lap."""
        before_s, self._last_s = self._last_s, self._clock()
        return self._last_s - before_s


def add_seconds(sums: _Seconds, seconds: _Seconds) -> None:
    """Add each field of `seconds` to the same field of `sums`."""
    for each in fields(sums):
        setattr(sums, each.name, getattr(sums, each.name) + getattr(seconds, each.name))


@dataclass(slots=True, kw_only=True)
class SessionSeconds:
    """Seconds of sessions that send rows: each second of a session is in one field.

    `waiting_s` is waiting for a block to send, `encoding_s` making COPY data, `sending_s` passing it to the server,
    which includes waiting until the server takes it, `finishing_s` waiting for the answers at the end of COPY commands,
    `committing_s` waiting for COMMIT.
    """

    waiting_s: float = 0.0
    encoding_s: float = 0.0
    sending_s: float = 0.0
    finishing_s: float = 0.0
    committing_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Return the seconds that were not spent waiting for blocks."""
        return self.encoding_s + self.sending_s + self.finishing_s + self.committing_s


@dataclass(slots=True)
class SessionTotals:
    """What a session did: bytes of COPY data, where its time went, rows committed. The ledger says which rows stay.

    Of objects that the server imports, `bytes_copied` counts the stored bytes.
    """

    bytes_copied: int = 0
    seconds: SessionSeconds = field(default_factory=SessionSeconds)
    rows_committed: int = 0


@dataclass(slots=True, kw_only=True)
class ReaderSeconds:
    """Seconds of readers: each second of a reader is in one field.

    `reading_s` is waiting for the source's bytes, `decompressing_s` decompressing them, `cutting_s` finding the ends of
    records, `queueing_s` waiting for room in the queue to the sessions.
    """

    reading_s: float = 0.0
    decompressing_s: float = 0.0
    cutting_s: float = 0.0
    queueing_s: float = 0.0


@frozen
class BackendIo:
    """What the server counts of the sessions that send rows: I/O of tables and indexes, and WAL.

    `is_exact` is whether these sessions alone are counted (PostgreSQL 18 and later). If not, I/O is that of all
    clients, and WAL that of the whole server, while rows were sent. A field is None if the server does not count it:
    I/O before PostgreSQL 16, and `io_s`, the time of that I/O, without track_io_timing. `wal_images` counts full-page
    images.
    """

    is_exact: bool
    read_bytes: int | None
    write_bytes: int | None
    extend_bytes: int | None
    io_s: float | None
    wal_bytes: int | None
    wal_images: int | None

    def add(self, other: BackendIo, *, sign: int = 1) -> BackendIo:
        """Return the sum of each field, or with sign -1 the difference."""
        sums: dict[str, Any] = {}
        for name in (each.name for each in fields(self) if each.name != "is_exact"):
            own, others = getattr(self, name), getattr(other, name)
            sums[name] = None if own is None or others is None else own + sign * others
        return replace(self, **sums)


@frozen
class LoadAccounts:
    """The counted times of one load.

    `elapsed_s` is the whole load's time, `rows_s` the time from the first session's begin to the last batch's commit.
    `sessions` and `readers` are sums over `session_count` sessions and `reader_count` readers. `steps_s` is the time of
    each step before and after the rows, by the step's name. `client_cpu_s` is the CPU time of this process, which has
    `client_cpus` processors. `bytes_read` counts stored (compressed) bytes, `bytes_copied` bytes of COPY data.
    `io` is what the server counted of the attempts that sent all rows; None if it could not be read.
    """

    elapsed_s: float
    rows_s: float
    sessions: SessionSeconds
    session_count: int
    readers: ReaderSeconds
    reader_count: int
    client_cpu_s: float
    client_cpus: int
    bytes_read: int
    bytes_copied: int
    rows: int
    steps_s: Mapping[str, float] = field(default_factory=dict)
    io: BackendIo | None = None


@frozen
class LoadSetting:
    """What stays in effect while rows are loaded, and costs time for each row; names are as SQL writes them.

    `sessions_why` is why the load has so many sessions. `is_import`: the server imports the objects from S3 itself.
    `droppable` are the indexes and keys that --indexes rebuild would drop besides. `choices` are what the user can
    still change, by the names that diagnose/choices.py has for it.
    """

    indexes: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    foreign_keys: tuple[str, ...] = ()
    sessions_why: str = ""
    is_import: bool = False
    droppable: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@frozen
class LoadCounts:
    """The accounts of a load, what stayed in effect meanwhile, and what the load did, if that was kept."""

    accounts: LoadAccounts
    setting: LoadSetting
    details: LoadDetails | None = None
