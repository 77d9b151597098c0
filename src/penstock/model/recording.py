"""What was seen of a server at work: samples on a clock, and the recording that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from penstock.model.server.inspection import Unread

# A statistics view's row as the server has it: newer servers have columns that others lack.
CounterRow: TypeAlias = Mapping[str, object]

# The counters of CloudWatch's metrics of local storage.
LOCAL_STORAGE = "rds_local_storage"

# "major.minor": readers take any minor one, and refuse a newer major one by name.
FORMAT = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSample:
    """One backend at one moment: a row of observe_sessions.sql.

    `wait_event_type` and `wait_event` are None while it waits for nothing, or where the role may not see it
    (`state` is None as well then). `query` has no literals, unless the recording keeps query text. `transaction_s` is
    the age of its transaction, `xid_age` that of its transaction number in transactions. `blocked_by` is filled while
    it waits for a lock; pid 0 is a prepared transaction. `cpu_s` is the processor time that its process has had so far,
    None where the server is not on this machine.
    """

    pid: int
    backend_type: str | None
    leader_pid: int | None
    database: str | None
    user: str | None
    application: str | None
    state: str | None
    wait_event_type: str | None
    wait_event: str | None
    query_id: int | None
    query: str | None
    query_s: float | None
    transaction_s: float | None
    xid_age: int | None
    blocked_by: tuple[int, ...] = ()
    cpu_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What moves while a procedure commits inside: the WAL position in bytes, and the next transaction's number.

    Either is None where the server does not have it.
    """

    wal_bytes: int | None
    next_xid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """All that one tick saw. `at_s` counts from the recording's start; `interval_s` is the real time since the last.

    `counters` are the statistics views that were read at this tick, by name, each with its rows: pg_stat_database,
    pg_stat_bgwriter, pg_stat_checkpointer, pg_stat_wal, pg_stat_io, pg_stat_replication, pg_stat_wal_receiver,
    pg_stat_statements (rows that have changed only), aurora_commits, temp_files (tablespace, pid, bytes), host_devices
    (tablespace, device, kind, what DeviceCounters has, free_bytes, size_bytes), rds_local_storage (instance,
    measured_at, CloudWatch's metrics of local storage by their names). `own_commits` are the sampler's
    transactions since the recording's start, which the counters hold too. `host_busy_cpus` is how many of the host's
    processors were busy since the last tick, None where the server is not on this machine.
    """

    at_s: float
    interval_s: float
    sessions: tuple[SessionSample, ...]
    progress: Progress
    own_commits: int = 0
    counters: Mapping[str, tuple[CounterRow, ...]] = field(default_factory=dict)
    host_busy_cpus: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingHeader:
    """What a recording is of. `started_at` is this host's clock as ISO 8601 in UTC, `clock_ahead_s` the server's lead.

    `cpu_count` is the server's, None where nobody knows it. `settings` are those that decide what a commit waits for.
    """

    started_at: str
    clock_ahead_s: float
    interval_s: float
    version: str
    version_num: int
    flavour: str
    server: str
    database: str
    is_in_recovery: bool
    cpu_count: int | None
    has_query_text: bool
    settings: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[Unread, ...] = ()


@dataclass(slots=True, kw_only=True)
class Recording:
    """A header and its samples in order. `is_whole` is False where its writer was killed, or still writes.

    Samples of a file are read one by one, once; whether it is whole is known when the last one was read.
    """

    header: RecordingHeader
    samples: Iterable[Sample]
    is_whole: bool = False
