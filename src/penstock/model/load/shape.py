"""What a load changes at a table to load faster, and how it was before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from penstock.model.server.table import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing at a table that a load has changed or is about to change, as the ledger has it.

    `kind`: "index" for one that is no constraint's, "constraint" for a key, an exclusion constraint or a foreign key of
    the table, "reference" for a foreign key of another table to it; others are the names of their kinds.
    `target_oid` is the table that is loaded; `relation_oid` the table at which the thing is: the same, a partition of
    it, or one that refers to it. `name` is the thing's own. `record` is what it was before, enough to make it again and
    to tell whether it is as it was. It is restored as role `owner`, who made the change. `load_id` began it; the ledger
    need not know that load any more. `number` is the order in which things were taken away, 0 where it is not written
    down yet. `is_copied`: the record came with a dump of another database, and its oids mean nothing here. `failure` is
    why it could not be restored when that was tried last, None if it was not tried.
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
        """Return the table at which it is, and that to which a foreign key refers."""
        referenced = self.record.get("references_oid")
        return (self.relation_oid, referenced) if type(referenced) is int else (self.relation_oid,)

    @property
    def relation(self) -> str:
        """Return the table to show: a foreign key belongs to the one that refers, whichever was loaded."""
        is_elsewhere = self.relation_oid != self.target_oid
        return str(self.record.get("relation", self.target) if is_elsewhere else self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A load that wants a table to stay as loading needs it while backend `pid` has its lock, None if none has."""

    load_id: str
    target_oid: int
    lock: str
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What a table lacks since a rebuild failed, by names, and why: rows that are in the way, mostly."""

    table: str
    names: tuple[str, ...]
    why: str


Indexes = Literal["auto", "keep", "rebuild"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An index, key or foreign key as a plan shows it: `what` it is, in words, and why it stays or is parked.

    `attached`: how many indexes, or keys, of partitions belong to it. `is_of_partition`: a partition has it for itself.
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
    """What is parked while a table is loaded and what stays; `reason` says why, for the table as a whole.

    `gain` is what parking more would gain, and who may say so; None if nothing would.
    """

    reason: str
    parked: tuple[Part, ...] = ()
    kept: tuple[Part, ...] = ()
    gain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Something that was restored, and how long that took."""

    kind: str
    name: str
    table: str
    seconds: float


RepairAction = Literal["rebuild", "restore", "finish", "forget", "drop", "wait", "keep", "refuse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """What a repair does about one record, and why.

    rebuild: make it again. restore: switch it on as it was. finish: complete what was begun. forget: it stands already,
    or its table is gone. wait: a load at work rebuilds it. keep: it is meant to stay. refuse: it cannot be put back.
    `attached`: how many of partitions belong to it, of which the same holds. Of kind "settings" it is a lease on
    settings of the server, of kind "staging" a copy of records that a failed merge has left, of kind "place" a place
    for temporary work.
    """

    table: str
    kind: str
    name: str
    owner: str
    action: RepairAction
    reason: str
    attached: int = 0
