"""The modes of a load, and what each mode does to the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How rows get into a table.
Mode = Literal["append", "truncate", "replace", "upsert", "insert-new"]

# What a merge does with a record whose key has a row: update the row, or skip the record.
MergeMode = Literal["upsert", "insert-new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeTraits:
    """What a mode does to the table.

    `merge` says what happens to a record whose key has a row; None if rows are not looked up by key. If `truncates` is
    true, the mode first removes all rows. If `replaces` is true, a new table takes the old one's place. If `adds` is
    true, the mode only adds rows, so it can be used with a transform, and several targets may share a table.
    """

    merge: MergeMode | None = None
    truncates: bool = False
    replaces: bool = False
    adds: bool = False

    @property
    def is_keyed(self) -> bool:
        """Whether the mode finds existing rows by a key.

        If so, files may lack columns: an update does not change the columns that are not in the file.
        """
        return self.merge is not None

    @property
    def updates(self) -> bool:
        """Whether the mode changes existing rows."""
        return self.merge == "upsert"

    @property
    def is_fresh(self) -> bool:
        """Whether the mode removes all former rows of the table, and so loads every object each time it is run."""
        return self.truncates or self.replaces


TRAITS: dict[Mode, ModeTraits] = {
    "append": ModeTraits(adds=True),
    "truncate": ModeTraits(truncates=True),
    "replace": ModeTraits(replaces=True),
    "upsert": ModeTraits(merge="upsert"),
    "insert-new": ModeTraits(merge="insert-new"),
}
