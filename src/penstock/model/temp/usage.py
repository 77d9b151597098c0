"""Temporary work as it was seen: which statements and databases wrote it, and where it goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.model.server.device import DeviceCounters, DeviceRates
    from penstock.model.server.rds import LocalStorageMetrics

# As pg_current_logfile names them.
LogFormat = Literal["jsonlog", "csvlog", "stderr"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCase:
    """What a statement uses temporary files for, by its plan; `remedy` is what is cheapest."""

    names: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """The row of temp_settings.sql; `denied` are the tablespaces in which the role may not create."""

    database: str | None
    role: str | None
    value: str
    denied: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Whose temporary work goes to which tablespaces; `ignored` is what PostgreSQL skips without a word, and why."""

    whose: str
    tablespaces: tuple[str, ...]
    ignored: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNow:
    """The device below a tablespace: what kind it is, or that it is the data's too, and what it has done so far."""

    tablespace: str
    device: str
    kind: str
    counters: DeviceCounters | None
    free_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """The device below a tablespace between two readings; `rates` is None where it has no counters.

    `temporary_iops` is about how many of the device's I/Os a second are temporary work, which moving it would free.
    """

    tablespace: str
    device: str
    kind: str
    free_bytes: int | None
    rates: DeviceRates | None
    temporary_iops: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementUse:
    """A statement of pg_stat_statements: spills are temp blocks, temporary tables local ones, both in bytes.

    Times are in milliseconds; None where the extension's version does not count them. `is_top`: not called by another
    statement, None before the extension's 1.9.
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
        """What it read and wrote, spills and temporary tables together."""
        return self.temp_read_bytes + self.temp_written_bytes + self.local_read_bytes + self.local_written_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUse:
    """The row of temp_databases.sql: spills of a database since its counters were reset."""

    name: str
    temp_files: int
    temp_bytes: int
    reset_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablespaceUse:
    """A tablespace now: files that spilled are counted if the role may see them; `size_bytes` is of all it holds."""

    name: str
    directory: str | None
    size_bytes: int | None
    temp_files: int | None
    temp_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBuild:
    """The row of temp_index_builds.sql: what is built now; of other databases neither name nor size is known."""

    pid: int
    database: str
    name: str | None
    phase: str
    table_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The end of the server's current log, in whole lines."""

    path: str
    format: LogFormat
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFiles:
    """Temporary files of one statement in the log, which has a file when it is closed; the text has no literals."""

    statement: str
    files: int
    total_bytes: int
    largest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """What a server tells at one moment; `missing` says what it does not, with the remedy."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRate:
    """What a database spilled between two readings."""

    name: str
    files_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """Temporary work within `elapsed_s`, None: since the statistics were reset, with no rates.

    `logged` is of the log's end, whenever that was; `log_path` is None where it cannot be read. `local_storage` are
    CloudWatch's metrics of an instance of RDS.
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
