"""The landings (how records get into a table in each mode) and the routes (who reads the objects).

A new landing is one entry here. If it needs a new statement, the statement is added to loading/land/merges.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from penstock.core.slotted import slotted

# How rows get into a table.
Mode = Literal["append", "truncate", "replace", "upsert", "insert-new", "sync"]

# Where COPY writes a target's records: into its table, into a staging table from which one statement fills the table,
# into a new table that replaces it, or into one that becomes a partition.
Where = Literal["table", "staging", "replacement", "partition"]

# The commands whose triggers may fire for a table.
TriggerEvent = Literal["INSERT", "UPDATE", "DELETE"]
# The bits of pg_trigger.tgtype. Source: src/include/catalog/pg_trigger.h
EVENT_BITS: Final[Mapping[TriggerEvent, int]] = {"INSERT": 4, "DELETE": 8, "UPDATE": 16}


@slotted
class Landing:
    """How records become rows of the table in one mode: where COPY writes, and what follows."""

    where: Where = "table"
    # The name of the statement that fills the table from a staging table.
    statement: str = "merge"
    # Whether the statement finds rows by a key. A file may then lack columns: an update leaves their values unchanged.
    is_keyed: bool = False
    # Whether the rows that are found by a key are updated.
    updates: bool = False
    # Whether the rows whose keys the files do not have are deleted.
    deletes: bool = False
    # Whether a TRUNCATE removes all former rows before the new rows are stored.
    truncates: bool = False
    # Whether all former rows are removed, so that every object is loaded each time.
    is_fresh: bool = False
    # Whether rows are only added, so that several targets may share a table and a transform can store the records.
    adds: bool = False
    # The triggers that may fire.
    events: tuple[TriggerEvent, ...] = ("INSERT",)
    # What other sessions see during the load.
    readers: str = "readers see rows as they are committed"
    # What other sessions see if the records are staged.
    readers_if_staged: str = "through a staging table, readers see all or nothing"

    @property
    def alone(self) -> str:
        """Return the advice of hints about files that cannot be loaded together.

        A load of some of the files may remove the rows of the others. Then the advice is to make the files alike.
        """
        if self.is_fresh or self.deletes:
            return "make the files alike, because a load of some of them would remove the rows of the others"
        return "load the files that differ separately"

    def staged(self) -> Landing:
        """Return this landing with a staging table if its COPY writes to the target itself, otherwise unchanged."""
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
    "sync": Landing(is_keyed=True, updates=True, deletes=True, events=("INSERT", "UPDATE", "DELETE")).staged(),
}

# The landing of a table that becomes a partition (--partition-of).
PARTITION = Landing(
    where="partition",
    is_fresh=True,
    readers="the table is made by itself and attached to its parent at the end, readers see all or nothing",
)

# The statement of a transform can insert, update and delete.
TRANSFORM = Landing(statement="transform", adds=True, events=("INSERT", "UPDATE", "DELETE")).staged()


Via = Literal["client", "server"]


@slotted
class RoutePlan:
    """Who reads the objects of a load, penstock or the server."""

    via: Via = "client"
    # The AWS region of the buckets; empty if the loader sends the rows.
    region: str = ""

    @property
    def is_import(self) -> bool:
        """Whether the server imports the objects from S3 itself."""
        return self.via == "server"


CLIENT_ROUTE = RoutePlan()


@slotted
class ImportRights:
    """The row of import_rights.sql: whether the role may call aws_s3.table_import_from_s3."""

    role: str
    # Whether the extension can be created.
    is_available: bool
    # Whether the function exists.
    exists: bool
    # Whether the function belongs to the extension or to a superuser.
    is_trusted: bool
    # Whether the role has USAGE on the function's schema.
    may_use: bool
    # Whether the role has EXECUTE on the function.
    may_execute: bool
