"""Samples of a server at work, and the recording that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.model.load.accounts import LoadCounts
    from penstock.model.server.counters import CounterRow
    from penstock.model.server.device import VolumeLimits
    from penstock.model.server.reading import Unread


# The format version as "major.minor". Readers accept any minor version, and refuse a newer major version.
FORMAT = "1.0"


@frozen
class SessionSample:
    """One backend at one moment: a row of observe_sessions.sql.

    `wait_event_type` and `wait_event` are None if the backend does not wait. All three of these and `state` are None if
    the role may not see them. `query` has no literals, unless the recording keeps query text. `transaction_s` is the
    age of the backend's transaction in seconds, `xid_age` the age of its transaction ID in transactions. While the
    backend waits for a lock, `blocked_by` has the pids of the backends that it waits for; pid 0 is a prepared
    transaction. `cpu_s` is the CPU time in seconds that the backend has used so far, None if the server is not on this
    machine.
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


@frozen
class Progress:
    """The WAL position in bytes, and the next transaction ID, which advance even if a procedure commits internally.

    Each is None if the server does not have it.
    """

    wal_bytes: int | None
    next_xid: int | None


@frozen
class Sample:
    """One sample. `at_s` is the time since the recording's start, `interval_s` the real time since the last sample.

    `counters` are the statistics views that were read at this tick, by name, each with its rows: pg_stat_database,
    pg_stat_bgwriter, pg_stat_checkpointer, pg_stat_wal, pg_stat_io, pg_stat_replication, pg_stat_wal_receiver,
    pg_stat_progress_copy, _create_index and _vacuum (with relname), pg_stat_statements and pg_statio_user_indexes
    (rows that have changed only; n_tup_changed is of the index's table), aurora_commits, temp_files (tablespace, pid,
    bytes), host_devices (tablespace, or pg_wal; device, kind, the fields of DeviceCounters, free_bytes, size_bytes),
    rds_local_storage (instance, measured_at, CloudWatch's metrics of local storage by their names), rds_metrics (a row
    for each minute that CloudWatch has reported since the last reading: instance, measured_at, period_s, METRIC_NAMES),
    rds_load (the same of Performance Insights: instance, measured_at, period_s, wait, sessions). AWS is late, so the
    measured_at of these two is earlier than the sample; the last row of a minute counts. `own_commits` is
    the number of the sampler's transactions since the recording's start, which the server's counters include.
    `host_busy_cpus` is how many of the host's CPUs were busy since the last tick that has it, None if the server is not
    on this machine, or if that tick was a moment ago.
    """

    at_s: float
    interval_s: float
    sessions: tuple[SessionSample, ...]
    progress: Progress
    own_commits: int = 0
    counters: Mapping[str, tuple[CounterRow, ...]] = field(default_factory=dict)
    host_busy_cpus: float | None = None


@frozen
class RecordingHeader:
    """Describes a recording and its server. `started_at` is the time of this host's clock, as ISO 8601 in UTC.

    `clock_ahead_s` is how far the server's clock is ahead of this host's clock, in seconds. `cpu_count` is the number
    of the server's CPUs, None if it is not known. `settings` are the server settings that the rules of diagnoses need.
    `volume` has the limits of the storage below the data directory, None if they are not known. If `application` is
    given, the workload is the sessions whose application name starts with it.
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
    volume: VolumeLimits | None = None
    application: str | None = None


@dataclass(slots=True, kw_only=True)
class Recording:
    """A header and its samples in order. `is_whole` is False if the writer was killed or is still writing.

    The samples of a file can be iterated over once, and are read one by one. `is_whole` is known after the last one,
    and so is `load`: what the loader itself counted, if the samples were taken beside a load that ended well.
    """

    header: RecordingHeader
    samples: Iterable[Sample]
    is_whole: bool = False
    load: LoadCounts | None = None
