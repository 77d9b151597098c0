"""Values of disk space: where tables are stored, and how much space a load is expected to need."""

from __future__ import annotations

from penstock.frozen import frozen


@frozen
class TableStorage:
    """Where a table is stored, and how large it is. The numbers are 0 for a table that does not exist yet."""

    # The directory of the table on the server's machine; None if the role may not read it.
    path: str | None
    # The directory of WAL on the server's machine; None if the role may not read it.
    wal_path: str | None
    # The size of the table with its indexes.
    stored_bytes: int
    index_count: int
    # The setting max_wal_size.
    wal_limit_bytes: int


@frozen
class SpaceNeed:
    """How many bytes a load is expected to add to the file system of a directory."""

    path: str
    # What is added, for messages.
    what: str
    needed_bytes: int


@frozen
class DiskForecast:
    """How many bytes a load is expected to add to one file system, and how many are free there now."""

    device: str
    free_bytes: int
    needs: tuple[SpaceNeed, ...]

    @property
    def needed_bytes(self) -> int:
        """Return the sum of all needs, in bytes."""
        return sum(need.needed_bytes for need in self.needs)

    @property
    def is_short(self) -> bool:
        """Whether the load would fill the file system."""
        return self.needed_bytes > self.free_bytes

    @property
    def is_tight(self) -> bool:
        """Whether the load would use more than half of the free space."""
        return self.needed_bytes * 2 > self.free_bytes
