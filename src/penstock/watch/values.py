"""Samples of a server at work, and the recording that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock.core.slotted import slotted
from penstock.core.values.device import CounterRow, VolumeLimits

if TYPE_CHECKING:
    from penstock.core.values.accounts import LoadCounts
    from penstock.core.values.server import Unread


# The processor time of the server's processes, as a view of a sample.
PROCESSES = "host_processes"

# The format version as "major.minor". Readers accept any minor version, and refuse a newer major version. Raise the
# minor for a new field that has a default, and the major for any other change. Older recordings must still be read.
FORMAT = "1.0"


@slotted
class SessionSample:
    """One backend at one moment: a row that sessions.sql returns."""

    pid: int
    backend_type: str | None
    leader_pid: int | None
    database: str | None
    user: str | None
    application: str | None
    # The state. This, and the type and name of the wait event, are None if the role may not see them.
    state: str | None
    # The type of the wait event. This and the next field are None if the backend does not wait.
    wait_event_type: str | None
    wait_event: str | None
    query_id: int | None
    # The text of the statement, without literals unless the recording keeps query text.
    query: str | None
    query_s: float | None
    # The age of the backend's transaction.
    transaction_s: float | None
    # The age of the backend's transaction id, in transactions.
    xid_age: int | None
    # While the backend waits for a lock, the pids of the backends that it waits for; pid 0 is a prepared transaction.
    blocked_by: tuple[int, ...] = ()
    # The CPU time that the backend has used so far, None if the server is not on this machine.
    cpu_s: float | None = None


@slotted
class Progress:
    """Counters that advance even while a procedure commits. Each is None if the server does not have it."""

    # The WAL position in bytes.
    wal_bytes: int | None
    # The next transaction ID.
    next_xid: int | None


@slotted
class Sample:
    """One sample of a server: its sessions, and the statistics views that were read at this moment."""

    # The time since the recording's start.
    at_s: float
    # The real time since the last sample.
    interval_s: float
    sessions: tuple[SessionSample, ...]
    progress: Progress
    # The sampler's transactions since the recording's start. The server's counters include them.
    own_commits: int = 0
    # The statistics views that were read at this tick, by name, each with its rows:
    # - pg_stat_database, pg_stat_bgwriter, pg_stat_checkpointer, pg_stat_wal, pg_stat_replication
    # - every ten seconds: pg_stat_io, pg_stat_wal_receiver, pg_stat_statements
    # - pg_stat_progress_copy, pg_stat_progress_create_index and pg_stat_progress_vacuum, with relname; the last also
    #   with the table's xid_age, mxid_age and n_tup_changed
    # - pg_statio_user_indexes: only rows that have changed; n_tup_changed is of the index's table
    # - once a minute: pg_stat_slru, pg_stat_replication_slots, pg_stat_user_tables with root and
    #   more (tables.sql), and the rows of xmin_holders.sql, database_ages.sql, sequences.sql, invalid_indexes.sql,
    #   unindexed_keys.sql, write_costs.sql; slots and archiver are those of inspect_slots.sql and inspect_archiver.sql
    # - aurora_commits, aurora_stat_optimized_reads_cache
    # - temp_files with tablespace, pid, bytes
    # - prepared (prepared.sql) with gid, owner, datname, age_s, xid_age, locks, tables, and the pids that it blocks
    # - connections with application, user, connections, idle, of_all and local_of_all (of the server)
    # - host_processes with server_cpu_s, busy_cpu_s: processor time of the server's processes, and of the whole host
    # - host_devices with tablespace (or pg_wal), device, kind, the fields of DeviceCounters, free_bytes,
    #   size_bytes, and least_free_bytes of all ticks since the row before
    # - rds_local_storage with instance, measured_at, and CloudWatch's metrics of local storage by their names
    # - rds_metrics with instance, measured_at, period_s and METRIC_NAMES: a row for each minute that CloudWatch has
    #   reported since the last reading
    # - rds_load with instance, measured_at, period_s, wait, sessions: the same from Performance Insights
    # AWS is late, so measured_at of the last two is earlier than the sample. Of several rows for one minute, the last
    # counts.
    counters: Mapping[str, tuple[CounterRow, ...]] = field(default_factory=dict)
    # How many of the host's CPUs were busy since the last tick with this value. None if the server is not on this
    # machine, or if that tick was less than 50 ms ago.
    host_busy_cpus: float | None = None


@slotted
class RecordingHeader:
    """Describes a recording and its server."""

    # The time of this host's clock, as ISO 8601 in UTC.
    started_at: str
    # How far the server's clock is ahead of this host's clock.
    clock_ahead_s: float
    interval_s: float
    version: str
    version_num: int
    flavour: str
    server: str
    database: str
    is_in_recovery: bool
    # The number of the server's CPUs, None if it is not known.
    cpu_count: int | None
    has_query_text: bool
    # The server settings that the rules of diagnoses need.
    settings: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[Unread, ...] = ()
    # The limits of the storage below the data directory, None if they are not known.
    volume: VolumeLimits | None = None
    # If given, the workload is the sessions whose application name starts with this text.
    application: str | None = None

    def time_of(self, at_s: float) -> datetime:
        """Return what the server's clock showed when a sample was taken, in UTC."""
        return datetime.fromisoformat(self.started_at) + timedelta(seconds=self.clock_ahead_s + at_s)


@dataclass(slots=True, kw_only=True)
class Recording:
    """A header and its samples in order.

    The samples of a file are read one by one, and can be iterated over once.
    """

    header: RecordingHeader
    samples: Iterable[Sample]
    # False if the writer was killed or is still writing. The value is final after the last sample was read.
    is_whole: bool = False
    # What the loader itself counted, if the samples were taken beside a load that ended well. The value is final after
    # the last sample was read.
    load: LoadCounts | None = None
