"""Disk space: what the catalogue says of a table's, and what a load is expected to take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpace:
    """A column's place in a row: pg_type's typname, typlen (-1: of varying length) and alignment in bytes."""

    name: str
    type_name: str
    length: int
    alignment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpace:
    """An index: its access method and columns, None for an expression."""

    name: str
    method: str
    columns: list[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """Where a table is, and how large it and its indexes were last seen; one that is still to be made has no bytes.

    `path`, `temp_path` (temporary tables, and files that sorts spill) and `wal_path` are directories of the server's
    machine, None where the role may not know them. `wal_limit_bytes` is max_wal_size.
    """

    path: str | None
    temp_path: str | None
    wal_path: str | None
    table_bytes: int
    index_bytes: int
    wal_limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpace:
    """One target's place, columns and indexes."""

    place: TablePlace
    columns: tuple[ColumnSpace, ...]
    indexes: tuple[IndexSpace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceNeed:
    """What a load is expected to add to one directory's file system, in bytes: `what` names it."""

    path: str
    what: str
    needed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskForecast:
    """What a load is expected to add to one file system, and what is free there now."""

    device: str
    free_bytes: int
    needs: tuple[SpaceNeed, ...]

    @property
    def needed_bytes(self) -> int:
        """Return all that is needed there."""
        return sum(need.needed_bytes for need in self.needs)

    @property
    def is_short(self) -> bool:
        """Whether the load would fill it."""
        return self.needed_bytes > self.free_bytes
