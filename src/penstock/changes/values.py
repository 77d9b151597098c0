"""Temporary changes that a load makes to a table or the server, and holds, which keep changes from being restored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from penstock.core.slotted import slotted
from penstock.core.values.server import ServerIdentity
from penstock.core.values.table import TableName

# The value of `target_oid` for a change of the whole server.
SERVER = 0
SERVER_NAME = TableName(schema=None, name="(the server)")


@slotted
class Change:
    """An index, constraint or property that was changed or is about to be changed, as the ledger records it."""

    # The table that is loaded, or SERVER.
    target_oid: int
    target: TableName
    # "index" is an index without a constraint. "constraint" is a key, an exclusion constraint or a foreign key of the
    # table. "reference" is a foreign key of another table that refers to the table. Other words name a kind of change.
    kind: str
    # The table that has the changed object: the loaded table, a partition of it, or a table that refers to it.
    relation_oid: int
    # The name of the changed object.
    name: str
    # The object's state before the change: enough to create the object again, and to see whether it is unchanged.
    record: Mapping[str, Any]
    # The load that made the change. The ledger may no longer have that load.
    load_id: str
    # The object's position in the order in which objects were dropped; 0 if that is not recorded yet.
    number: int = 0
    # The role that made the change and that restores it.
    owner: str = ""
    made_at: datetime | None = field(default=None, compare=False)
    # Whether the record came with a dump of another database, so that its OIDs have no meaning here.
    is_copied: bool = False
    # Why the last attempt to restore the object failed; None if no attempt failed.
    failure: str | None = field(default=None, compare=False)

    @property
    def relations(self) -> tuple[int, ...]:
        """Return the OID of the table that has the changed object; for a foreign key, also of the referenced table."""
        referenced = self.record.get("references_oid")
        return (self.relation_oid, referenced) if type(referenced) is int else (self.relation_oid,)

    @property
    def relation(self) -> str:
        """Return the name of the table to show. For a foreign key it is always the referencing table."""
        is_elsewhere = self.relation_oid != self.target_oid
        return str(self.record.get("relation", self.target) if is_elsewhere else self.target)


def server_change(kind: str, name: str, record: Mapping[str, Any], holder_id: str, *, number: int = 0) -> Change:
    """Return a change of the whole server. `holder_id` is the id of the lease or command that makes it."""
    return Change(
        target_oid=SERVER,
        target=SERVER_NAME,
        kind=kind,
        relation_oid=SERVER,
        name=name,
        record=record,
        load_id=holder_id,
        number=number,
    )


def lock_of(holder_id: str) -> str:
    """Return the key of a lease's advisory lock, in hexadecimal: the hexadecimal digits of its id, "0" if it has none.

    Loads have other keys.
    """
    return re.sub("[^0-9a-f]", "", holder_id.lower()) or "0"


@slotted
class Hold:
    """A record that a load or a command still needs the changes of a table or of the server."""

    # The id of the load or of the lease.
    holder_id: str
    # The table's OID, or SERVER.
    target_oid: int
    # The key of the holder's advisory lock.
    lock: str | None = None
    # The backend that has the lock, or that of another process of the load; None if there is none.
    pid: int | None = None
    # The changes of the server that the hold keeps. A hold on a table keeps all changes of the table.
    names: tuple[str, ...] = ()
    # Whether the hold is valid without a backend.
    stands: bool = False
    # The time at which a hold without a backend ends, None if it is valid until it is removed.
    until: datetime | None = None
    owner: str = ""
    client: str = ""
    reason: str = ""
    made_at: datetime | None = None
    # The server on which the changes were made; None if that does not matter.
    server: ServerIdentity | None = None

    @property
    def is_alive(self) -> bool:
        """Return whether the hold is valid: a backend has its lock, or it needs no backend."""
        return self.pid is not None or self.stands

    def wants(self, change: Change) -> bool:
        """Return whether this hold, if it is alive, keeps a change from being restored."""
        is_named = self.target_oid != SERVER or change.name in self.names
        return change.target_oid == self.target_oid and is_named

    def is_of(self, server: ServerIdentity) -> bool:
        """Return whether the hold's changes were made on this server; true if the hold is not bound to a server."""
        return self.server is None or self.server.is_same(server)


@slotted
class Missing:
    """The names of indexes and keys that a table lacks because a rebuild failed."""

    table: str
    names: tuple[str, ...]
    # The reason for the failure; often rows violate a key.
    why: str


@slotted
class IndexOrKey:
    """An index, key or foreign key in a plan."""

    kind: str
    # What messages call it, such as "unique index" or "foreign key".
    what: str
    name: str
    relation: str
    # Why the index or key is kept or dropped.
    reason: str
    # How many indexes or keys of partitions are attached to this one.
    attached: int = 0
    # Whether the index or key belongs to one partition only.
    is_of_partition: bool = False


@slotted
class IndexPlan:
    """Which indexes, keys and foreign keys are dropped while a table is loaded, and which are kept and why."""

    # The reason for the decision about the whole table. Empty if the table has no indexes or keys.
    reason: str = ""
    dropped: tuple[IndexOrKey, ...] = ()
    kept: tuple[IndexOrKey, ...] = ()
    # What would be gained if more was dropped, and with which option; None if nothing would be gained.
    gain: str | None = None
    # The names of what is kept and would be dropped with --indexes rebuild.
    droppable: tuple[str, ...] = ()


@slotted
class Rebuilt:
    """An index, key or other object that was restored, and how long that took."""

    kind: str
    name: str
    table: str
    seconds: float


RepairAction = Literal["rebuild", "restore", "finish", "forget", "drop", "wait", "keep", "refuse"]


@slotted
class RepairStep:
    """What a repair does with one object, and why.

    rebuild: create the object again. restore: restore the object's former state. finish: complete a change that was
    begun. forget: remove the record, because the object exists already, or its table does not exist any more, or the
    user gave up the object. drop: drop the staging table. wait: a running load rebuilds the object. keep: the change is
    meant to stay. refuse: the object cannot be restored.
    """

    table: str
    # "staging" is a staging table that a failed merge has left; the other kinds are kinds of changes.
    kind: str
    name: str
    owner: str
    action: RepairAction
    reason: str
    # How many objects of partitions are attached to the object. The attached objects get the same action.
    attached: int = 0


def name_with_attached(part: IndexOrKey | RepairStep) -> str:
    """Return the name of an index or key, with the number of indexes or keys of partitions that are attached."""
    return f"{part.name}, with {part.attached} on partitions" if part.attached else part.name
