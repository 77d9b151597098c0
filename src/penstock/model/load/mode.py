"""The modes of a load, and what each does to the table: the only place that knows them by their names."""

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

    `merge`: it finds existing rows by a key, and this is how. `truncates`: it removes all rows first. `replaces`: a new
    table takes the old one's place. `adds`: it does nothing but add rows, so that a transform may be used with it, and
    several targets may share a table.
    """

    merge: MergeMode | None = None
    truncates: bool = False
    replaces: bool = False
    adds: bool = False

    @property
    def is_keyed(self) -> bool:
        """Whether it finds existing rows by a key. Files may then lack columns: an update does not touch these."""
        return self.merge is not None

    @property
    def updates(self) -> bool:
        """Whether it changes existing rows."""
        return self.merge == "upsert"

    @property
    def is_fresh(self) -> bool:
        """Whether it removes all former rows of the table, and so loads every object each time it is run."""
        return self.truncates or self.replaces


TRAITS: dict[Mode, ModeTraits] = {
    "append": ModeTraits(adds=True),
    "truncate": ModeTraits(truncates=True),
    "replace": ModeTraits(replaces=True),
    "upsert": ModeTraits(merge="upsert"),
    "insert-new": ModeTraits(merge="insert-new"),
}
