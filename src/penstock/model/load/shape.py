"""The changes at a table or of the server, with their state before, and the holds that want them to stay."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.model.server.table import TableName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from penstock.model.server.identity import ServerIdentity

# In place of a table's oid, for what belongs to the whole server.
SERVER = 0
SERVER_NAME = TableName(schema=None, name="(the server)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An index, constraint or property of a table that a load has changed or is about to change, as the ledger has it.

    `kind`: "index" for an index without a constraint, "constraint" for a key, an exclusion constraint or a foreign key
    of the table, "reference" for a foreign key of another table to it; otherwise the name of the kind. `target_oid` is
    the table that is loaded; `relation_oid` is the table that has the changed object: the same table, a partition of
    it, or a table that refers to it. `name` is the name of the changed object. `record` is its state before the change:
    enough to create it again, and to see whether it is unchanged. It is restored by role `owner`, which made the
    change. `load_id` is the load that made the change; the ledger may have forgotten that load. `number` is the order
    in which objects were dropped, 0 if that is not recorded yet. `is_copied`: the record came with a dump of another
    database, so its OIDs have no meaning here. `failure` is why the last attempt to restore it failed, None if there
    was none.
    """

    target_oid: int
    target: TableName
    kind: str
    relation_oid: int
    name: str
    record: Mapping[str, Any]
    load_id: str
    number: int = 0
    owner: str = ""
    made_at: datetime | None = field(default=None, compare=False)
    is_copied: bool = False
    failure: str | None = field(default=None, compare=False)

    @property
    def relations(self) -> tuple[int, ...]:
        """Return the OID of the table that has the changed object, and of the table that a foreign key refers to."""
        referenced = self.record.get("references_oid")
        return (self.relation_oid, referenced) if type(referenced) is int else (self.relation_oid,)

    @property
    def relation(self) -> str:
        """Return the name of the table to show: for a foreign key the referencing table, even if another is loaded."""
        is_elsewhere = self.relation_oid != self.target_oid
        return str(self.record.get("relation", self.target) if is_elsewhere else self.target)


def server_change(kind: str, name: str, record: Mapping[str, Any], holder_id: str, *, number: int = 0) -> Change:
    """Return a change of the whole server."""
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
    """Return the lock of a holder that is no load: hexadecimal digits, whoever wrote the id."""
    return re.sub("[^0-9a-f]", "", holder_id.lower()) or "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A load or command that wants a table, or the server if `target_oid` is SERVER, to stay changed.

    `holder_id` is the id of the load, or of the lease. The holder is alive while backend `pid` has lock `lock`,
    or if the hold `stands`: until time `until`, or until it is removed if `until` is None. `names` are the changes of
    the server that it wants; at a table it wants all. `server` is the server at which they were made, if that matters.
    """

    holder_id: str
    target_oid: int
    lock: str | None = None
    pid: int | None = None
    names: tuple[str, ...] = ()
    stands: bool = False
    until: datetime | None = None
    owner: str = ""
    client: str = ""
    reason: str = ""
    made_at: datetime | None = None
    server: ServerIdentity | None = None

    @property
    def is_alive(self) -> bool:
        """Return whether what it wants must stay changed."""
        return self.pid is not None or self.stands

    def wants(self, change: Change) -> bool:
        """Return whether it wants a change."""
        is_named = self.target_oid != SERVER or change.name in self.names
        return change.target_oid == self.target_oid and is_named

    def is_of(self, server: ServerIdentity) -> bool:
        """Return whether its changes were made at this server, or at any."""
        return self.server is None or self.server.is_same(server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The names of indexes and keys that a table lacks because a rebuild failed, and why: often rows violate a key."""

    table: str
    names: tuple[str, ...]
    why: str


Indexes = Literal["auto", "keep", "rebuild"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An index, key or foreign key in a plan: `what` describes it, `reason` says why it is kept or parked.

    `attached` is the number of indexes or keys of partitions that belong to it. `is_of_partition`: it belongs to one
    partition only.
    """

    kind: str
    what: str
    name: str
    relation: str
    reason: str
    attached: int = 0
    is_of_partition: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingPlan:
    """What is parked while a table is loaded and what is kept; `reason` says why, for the table as a whole.

    `gain` says what parking more would gain and which option asks for it; None if nothing would be gained.
    """

    reason: str
    parked: tuple[Part, ...] = ()
    kept: tuple[Part, ...] = ()
    gain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """An index, key or other object that was restored, and how long that took."""

    kind: str
    name: str
    table: str
    seconds: float


RepairAction = Literal["rebuild", "restore", "finish", "forget", "drop", "wait", "keep", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """What a repair does about one record, and why.

    rebuild: create the object again. restore: restore its former state. finish: complete what was begun. forget: the
    object exists already, or its table does not exist any more. wait: a running load rebuilds it. keep: it is meant to
    stay. refuse: it cannot be restored. `attached` is the number of objects of partitions that belong to it and get the
    same action. Kind "staging" is a staging table that a failed merge has left.
    """

    table: str
    kind: str
    name: str
    owner: str
    action: RepairAction
    reason: str
    attached: int = 0
