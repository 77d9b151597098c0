"""A table's definition: captured, made again beside it, and swapped in.

The order is capture_table, find_obstacles, create_replacement (and enforce_early, where rows are to be refused one by
one), the load, finish_replacement, swap_replacement; until the last commits, the old table is untouched.
find_older_snapshots names who should be waited for before the swap. Loading, the record of it and dropping a new table
that is given up belong to others.
"""

from __future__ import annotations

from penstock.server.ddl.capture import capture_table
from penstock.server.ddl.definition import TableDefinition, find_differences
from penstock.server.ddl.dependencies import (
    Obstacle,
    find_all_tables_publications,
    find_obstacles,
    refuse_obstacles,
)
from penstock.server.ddl.names import name_indexes
from penstock.server.ddl.replacement import (
    create_replacement,
    enforce_early,
    finish_replacement,
)
from penstock.server.ddl.snapshots import OlderSnapshot, find_older_snapshots, mark_end_of_load
from penstock.server.ddl.swap import swap_replacement

__all__ = [
    "Obstacle",
    "OlderSnapshot",
    "TableDefinition",
    "capture_table",
    "create_replacement",
    "enforce_early",
    "find_all_tables_publications",
    "find_differences",
    "find_obstacles",
    "find_older_snapshots",
    "finish_replacement",
    "mark_end_of_load",
    "name_indexes",
    "refuse_obstacles",
    "swap_replacement",
]
