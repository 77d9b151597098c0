"""Temporary work of a server: which statements and databases cause it, and to which tablespaces it goes. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal

from penstock.frozen import frozen

if TYPE_CHECKING:
    from penstock.model.server.device import DeviceCounters, DeviceRates
    from penstock.model.server.rds import LocalStorageMetrics

# The formats of the server's log, as pg_current_logfile names them.
LogFormat = Literal["jsonlog", "csvlog", "stderr"]


@frozen
class UseCase:
    """What a statement uses temporary files for, according to its plan; `remedy` is the cheapest remedy."""

    names: tuple[str, ...]
    remedy: str


@frozen
class SettingRow:
    """The row of temp_settings.sql; `denied` are the tablespaces on which the role lacks CREATE."""

    database: str | None
    role: str | None
    value: str
    denied: list[str]


@frozen
class Route:
    """The tablespaces of one scope's temporary work; `ignored` are names that PostgreSQL skips silently, and why."""

    whose: str
    tablespaces: tuple[str, ...]
    ignored: tuple[str, ...]


@frozen
class DeviceNow:
    """The device of a tablespace now.

    `kind` is the kind of device, or says that the device also holds the data. `counters` are the device's totals.
    """

    tablespace: str
    device: str
    kind: str
    counters: DeviceCounters | None
    free_bytes: int | None


@frozen
class DeviceUse:
    """The device of a tablespace between two readings; `rates` is None if the device has no counters.

    `temporary_iops` estimates how many of the device's I/Os per second are temporary work, and would move with it.
    """

    tablespace: str
    device: str
    kind: str
    free_bytes: int | None
    rates: DeviceRates | None
    temporary_iops: float | None


@frozen
class StatementUse:
    """A statement of pg_stat_statements. Fields `temp_` count spills, `local_` temporary tables, both in bytes.

    Times are in milliseconds, None if the extension's version does not count them. `is_top` is true if no other
    statement calls the statement; None before version 1.9 of the extension. `unplanned` is why `use_case` is missing.
    """

    database: str | None
    role: str | None
    queryid: int
    query: str
    calls: int
    total_exec_time_ms: float
    rows: int
    temp_read_bytes: int
    temp_written_bytes: int
    local_read_bytes: int
    local_written_bytes: int
    temp_read_time_ms: float | None
    temp_write_time_ms: float | None
    is_top: bool | None = None
    use_case: UseCase | None = None
    unplanned: str | None = None

    @property
    def temporary_bytes(self) -> int:
        """The bytes read and written by spills and in temporary tables."""
        return self.temp_read_bytes + self.temp_written_bytes + self.local_read_bytes + self.local_written_bytes


@frozen
class DatabaseUse:
    """The row of temp_databases.sql: spills of a database since its counters were reset."""

    name: str
    temp_files: int
    temp_bytes: int
    reset_at: datetime | None = None


@frozen
class TablespaceUse:
    """A tablespace now: `temp_` counts temporary files if the role may see them; `size_bytes` is its total size."""

    name: str
    directory: str | None
    size_bytes: int | None
    temp_files: int | None
    temp_bytes: int | None


@frozen
class IndexBuild:
    """The row of temp_index_builds.sql: an index build; in other databases its name and size are not known."""

    pid: int
    database: str
    name: str | None
    phase: str
    table_bytes: int | None


@frozen
class LogEnd:
    """The end of the server's current log, in whole lines."""

    path: str
    format: LogFormat
    text: str


@frozen
class LoggedFiles:
    """Temporary files of one statement in the log, which lists a file when it is deleted; the text has no literals."""

    statement: str
    files: int
    total_bytes: int
    largest_bytes: int


@frozen
class UsageReading:
    """What a server reports at one moment; `missing` says what it does not report, with the remedy."""

    at_s: float
    temp_tablespaces: str
    statements: tuple[StatementUse, ...]
    databases: tuple[DatabaseUse, ...]
    tablespaces: tuple[TablespaceUse, ...]
    settings: tuple[SettingRow, ...]
    missing: tuple[str, ...]
    routes: tuple[Route, ...] = ()
    devices: tuple[DeviceNow, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    statements_reset_at: datetime | None = None


@frozen
class DatabaseRate:
    """What a database spilled between two readings."""

    name: str
    files_per_s: float
    bytes_per_s: float


@frozen
class UsageReport:
    """Temporary work within `elapsed_s`; if that is None, since the statistics were reset, and without rates.

    `logged` is from the end of the server's log, whatever time that covers; `log_path` is None if the log cannot be
    read. `local_storage` has CloudWatch's metrics of an RDS instance.
    """

    elapsed_s: float | None
    temp_tablespaces: str
    statements: tuple[StatementUse, ...]
    databases: tuple[DatabaseRate, ...]
    tablespaces: tuple[TablespaceUse, ...]
    missing: tuple[str, ...]
    routes: tuple[Route, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    log_path: str | None = None
    logged: tuple[LoggedFiles, ...] = ()
    local_storage: LocalStorageMetrics | None = None
