"""The landings: how each mode, or a transform, gets records into a table, and what the rest of a load asks about that.

A new landing is one entry here and, if no present statement does what it does, one in loading/landing/statements.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from penstock.frozen import frozen

# How rows get into a table.
Mode = Literal["append", "truncate", "replace", "upsert", "insert-new"]

# Where COPY writes a target's records: into its table, into a staging table from which one statement fills the table,
# or into a new table that replaces it.
Where = Literal["table", "staging", "replacement"]

# The commands whose triggers may fire for a table.
TriggerEvent = Literal["INSERT", "UPDATE", "DELETE"]


@frozen
class Landing:
    """How records get into a table.

    `statement` names what fills the table from a staging table. If `is_keyed` is true, it finds rows by a key; files
    may lack columns then, because an update does not change the columns that are not in the file. If `updates` is true,
    it changes these rows. If `is_fresh` is true, all former rows are removed, so every object is loaded each time; if
    `truncates` is true, by a TRUNCATE before the new rows. If `adds` is true, rows are only added, so several targets
    may share a table, and a transform can take the records on. `events` are the triggers that may fire. `readers` says
    what other sessions see, `readers_if_staged` what they see if the records are staged.
    """

    where: Where = "table"
    statement: str = "merge"
    is_keyed: bool = False
    updates: bool = False
    truncates: bool = False
    is_fresh: bool = False
    adds: bool = False
    events: tuple[TriggerEvent, ...] = ("INSERT",)
    readers: str = "readers see rows as they are committed"
    readers_if_staged: str = "through a staging table, readers see all or nothing"

    def staged(self) -> Landing:
        """Return this landing with the records staged, if COPY filled the table."""
        return replace(self, where="staging", readers=self.readers_if_staged) if self.where == "table" else self


LANDINGS: dict[Mode, Landing] = {
    "append": Landing(adds=True),
    "truncate": Landing(
        truncates=True,
        is_fresh=True,
        readers="readers see an empty table, then rows as they are committed",
        readers_if_staged="through a staging table, readers see all or nothing, and wait from the TRUNCATE at the end "
        "until all rows are moved; with mode replace they hardly wait",
    ),
    "replace": Landing(
        where="replacement", is_fresh=True, readers="a new table takes the old one's place, readers see all or nothing"
    ),
    "upsert": Landing(is_keyed=True, updates=True, events=("INSERT", "UPDATE")).staged(),
    "insert-new": Landing(is_keyed=True).staged(),
}

# The statement of a transform can insert, update and delete.
TRANSFORM = Landing(statement="transform", adds=True, events=("INSERT", "UPDATE", "DELETE")).staged()
