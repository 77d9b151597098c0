"""Disk space: where tables are, and what a load is expected to take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """Where a table is, how many indexes it has, and how large both were last seen; one still to be created has none.

    `path` and `wal_path` are directories of the server's machine, None where the role may not know them.
    `wal_limit_bytes` is max_wal_size.
    """

    path: str | None
    wal_path: str | None
    stored_bytes: int
    index_count: int
    wal_limit_bytes: int


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

    @property
    def is_tight(self) -> bool:
        """Whether the load would take more than half of what is free."""
        return self.needed_bytes * 2 > self.free_bytes
