"""Temporary work of a server: which statements and databases cause it, and to which tablespaces it goes. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from penstock.core.slotted import slotted
from penstock.core.values.device import DeviceCounters, DeviceRates, TieredCache

if TYPE_CHECKING:
    from penstock.rds.values import LocalStorageMetrics


@slotted
class UseCase:
    """What a statement uses temporary files for, according to its plan."""

    names: tuple[str, ...]
    # The cheapest remedy.
    remedy: str


@slotted
class SettingRow:
    """A row of settings.sql: temp_tablespaces as it is set for a database, a role, or a role in a database."""

    database: str | None
    role: str | None
    value: str
    # The tablespaces on which the role lacks CREATE.
    denied: list[str]


@slotted
class TempTablespaces:
    """The tablespaces to which the temporary files of some sessions go."""

    # The scope, in words for users.
    whose: str
    tablespaces: tuple[str, ...]
    # The names that PostgreSQL skips silently, and why.
    ignored: tuple[str, ...]


@slotted
class DeviceNow:
    """The device that has a tablespace, with its counters at the time of a reading."""

    tablespace: str
    device: str
    # The kind of device, or that the device also holds the data.
    kind: str
    # The device's totals, None if it has no counters.
    counters: DeviceCounters | None
    free_bytes: int | None


@slotted
class TablespaceDevice:
    """The device that has a tablespace, with its rates between two readings."""

    tablespace: str
    device: str
    kind: str
    free_bytes: int | None
    # The device's rates, None if it has no counters.
    rates: DeviceRates | None
    # An estimate of the device's I/Os per second that are temporary work and would move with it.
    temporary_iops: float | None


@slotted
class StatementUse:
    """A row of pg_stat_statements. Times are in milliseconds, None if the extension's version does not count them."""

    database: str | None
    role: str | None
    queryid: int
    query: str
    calls: int
    total_exec_time_ms: float
    rows: int
    # The bytes of spills that were read. The next field is the bytes of spills that were written.
    temp_read_bytes: int
    temp_written_bytes: int
    # The bytes of temporary tables that were read. The next field is those that were written.
    local_read_bytes: int
    local_written_bytes: int
    temp_read_time_ms: float | None
    temp_write_time_ms: float | None
    # Whether a client sent the statement itself, and no function ran it. It is column toplevel of pg_stat_statements,
    # which versions before 1.9 lack: then it is None.
    is_top: bool | None = None
    use_case: UseCase | None = None
    # Why there is no use case, None if there is one.
    unplanned: str | None = None

    @property
    def temporary_bytes(self) -> int:
        """The bytes that were read and written in temporary files and temporary tables."""
        return self.temp_read_bytes + self.temp_written_bytes + self.local_read_bytes + self.local_written_bytes


@slotted
class DatabaseUse:
    """A row of databases.sql: the temporary files of a database since its counters were reset."""

    name: str
    temp_files: int
    temp_bytes: int
    reset_at: datetime | None = None


@slotted
class TablespaceUse:
    """A row of tablespaces_now.sql or tablespaces_named.sql: what a tablespace has now."""

    name: str
    directory: str | None
    # The total size of the tablespace's files.
    size_bytes: int | None
    # The number of temporary files. This and the next field are None if the role may not see temporary files.
    temp_files: int | None
    temp_bytes: int | None


@slotted
class IndexBuild:
    """A row of index_builds.sql: a running index build. Name and size are None if it is in another database."""

    pid: int
    database: str
    name: str | None
    phase: str
    table_bytes: int | None


@slotted
class UsageReading:
    """What a server reports of temporary files and tables at one time.

    `at_s` is that time, in seconds of this host's monotonic clock.
    """

    at_s: float
    temp_tablespaces: str
    # The tablespaces on which the role of this session lacks CREATE.
    denied: tuple[str, ...]
    statements: tuple[StatementUse, ...]
    databases: tuple[DatabaseUse, ...]
    tablespaces: tuple[TablespaceUse, ...]
    settings: tuple[SettingRow, ...]
    # What the server does not report, with the remedy.
    missing: tuple[str, ...]
    routes: tuple[TempTablespaces, ...] = ()
    devices: tuple[DeviceNow, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    statements_reset_at: datetime | None = None


@slotted
class DatabaseRate:
    """How many temporary files and bytes a database wrote per second between two readings."""

    name: str
    files_per_s: float
    bytes_per_s: float


@slotted
class UsageReport:
    """What temporary files and tables a server writes, where to, and for which statements."""

    # The time between two readings. None if there is one reading: the report then counts from the reset of the
    # statistics and has no rates.
    elapsed_s: float | None
    temp_tablespaces: str
    statements: tuple[StatementUse, ...]
    databases: tuple[DatabaseRate, ...]
    tablespaces: tuple[TablespaceUse, ...]
    missing: tuple[str, ...]
    routes: tuple[TempTablespaces, ...] = ()
    devices: tuple[TablespaceDevice, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    # CloudWatch's metrics of an RDS instance.
    local_storage: LocalStorageMetrics | None = None
    # Aurora's cache of pages, which is on the same local storage as temporary files.
    tiered_cache: TieredCache | None = None
