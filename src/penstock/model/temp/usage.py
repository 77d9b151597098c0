"""Temporary work as it was seen: which statements and databases wrote it, and where it goes. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementUse:
    """A statement of pg_stat_statements: spills are temp blocks, temporary tables local ones, both in bytes.

    Times are in milliseconds; None where the extension's version does not count them.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TablespaceUse:
    """A tablespace now: files that spilled are counted if the role may see them; `size_bytes` is of all it holds."""

    name: str
    directory: str | None
    size_bytes: int | None
    temp_files: int | None
    temp_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReading:
    """What a server tells at one moment; `missing` says what it does not, with the remedy."""

    at_s: float
    temp_tablespaces: str
    statements: tuple[StatementUse, ...]
    databases: tuple[DatabaseUse, ...]
    tablespaces: tuple[TablespaceUse, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRate:
    """What a database spilled between two readings."""

    name: str
    files_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """Temporary work within `elapsed_s`; `now` is what the later reading found on disk."""

    elapsed_s: float
    temp_tablespaces: str
    statements: tuple[StatementUse, ...]
    databases: tuple[DatabaseRate, ...]
    tablespaces: tuple[TablespaceUse, ...]
    missing: tuple[str, ...]
