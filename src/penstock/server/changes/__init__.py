"""What a load changes at a table: written down first, put back as it was; how long, and by whom, is loading's business.

A record is committed before its change is made. Whether the change was made is never written down: the catalogue is
looked at. The records of one table are written, and things put back, under a lock of that table's (shape_lock).
"""

from __future__ import annotations

from penstock.server.changes.holds import find_other_holds, hold_shape, release_shape, shape_lock
from penstock.server.changes.records import delete_changes, find_changed, find_others, read_changes, write_changes

__all__ = [
    "delete_changes",
    "find_changed",
    "find_other_holds",
    "find_others",
    "hold_shape",
    "read_changes",
    "release_shape",
    "shape_lock",
    "write_changes",
]
