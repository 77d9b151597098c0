"""The ledger's records of loads, of objects, and of the parts of objects that are committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.model.server.table import TableName

# A half-open byte range [start, end) of an object's decompressed bytes.
Range = tuple[int, int]

LoadState = Literal["running", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The committed ranges of one object: sorted, disjoint, not adjacent.

    `has_start` and `has_end`: the object's first record, and its last record, are committed. An object is complete if
    both are and no range between them is missing.
    """

    ranges: tuple[Range, ...] = ()
    has_start: bool = False
    has_end: bool = False
    rows: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every record of the object is committed."""
        return self.has_start and self.has_end and len(self.ranges) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRange:
    """One row of the ledger: the ranges of one object that one transaction committed.

    `ranges` are in ascending order; `start` is where the first begins. `checksum` is the CRC-32 of their bytes in that
    order, xor the CRC-32 of the object's header record. An object without records has one row, without ranges.
    `records` is the number of records cut from the object, `rows` the number stored; the others were suppressed by row
    triggers or rejected. `form` is how the records are read (RecordForm as JSON), if some were rejected.
    """

    object_number: int
    start: int
    ranges: tuple[Range, ...]
    has_start: bool
    has_end: bool
    records: int
    rows: int
    suppressed: int
    checksum: int
    rejected: int = 0
    form: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerObject:
    """One object of a load, its target table and its version. `version` is None if the source has none.

    `uri` is a URL, or a file's path with every symbolic link resolved. `ctime_ns` is a local file's time of change: if
    it is another when an unfinished load is resumed, the load compares the checksums of the ranges it has committed.
    """

    number: int
    target_oid: int
    target: TableName
    uri: str
    version: str | None
    size_bytes: int | None
    ctime_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownObject:
    """The ledger's record of an object that is to be loaded, found by its table and URI.

    `load_id` is the load that the record belongs to, `identity` that load's identity. `target_oid` is the table's OID
    in this database. `rows` is the number of committed rows of the object, 0 if its staged records gave none.
    `is_superseded`: a later load has truncated or replaced the table, or the table that it is a partition of.
    """

    load_id: str
    identity: str
    state: LoadState
    number: int
    target_oid: int
    uri: str
    version: str | None
    rows: int
    is_superseded: bool = False
    size_bytes: int | None = None
    ctime_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOutlook:
    """What a load would do with each of its objects, in the order of the job, if it ran now.

    `exists`: the ledger exists. `resumes` is the load that would be resumed.
    """

    exists: bool
    resumes: str | None
    actions: tuple[Literal["new", "resume", "skip"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right of this process to run a load, which ends if the load's epoch changes; `is_resumed`: not a new load."""

    load_id: str
    epoch: int
    is_resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedLoad:
    """A load that the ledger says is complete, with the rows of this run and of earlier runs.

    `inserted`, `updated`, `duplicates` and `existing` count what merges from staging tables did. `is_local_only`: the
    wait for a synchronous standby was cancelled, so only the primary is known to have the commit. `is_others`: another
    process has completed the load.
    """

    rows: int
    suppressed: int
    is_local_only: bool
    is_others: bool = False
    inserted: int = 0
    updated: int = 0
    duplicates: int = 0
    existing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingRecord:
    """The table that a load has created for one of its targets, the table `target`, number `number` in the job.

    `kind` is what the created table is for; None if the target was truncated and no table created. `definition` is a
    digest of the definition of the table that a replacement was created for.
    """

    number: int
    target_oid: int
    target: TableName
    is_truncated: bool = False
    kind: Literal["staging", "replacement"] | None = None
    schema: str | None = None
    table: str | None = None
    oid: int | None = None
    definition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedTarget:
    """A target whose records were copied into another table first: its number in the job, that table, its objects."""

    number: int
    target_oid: int
    schema: str
    table: str
    objects: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedCounts:
    """How many of the `staged` records of one target were inserted, updated or not stored at the load's end.

    `target_oid` is the table's OID after the load: a replaced table has a new one. With a transform, `inserted` counts
    the rows that its statement stored.
    """

    number: int
    target_oid: int
    staged: int = 0
    inserted: int = 0
    updated: int = 0
    duplicates: int = 0
    existing: int = 0
    suppressed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StayingRows:
    """How many rows of a load are in a table, by the ledger."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """One load as `penstock loads` lists it: counts are of committed rows, times are the server's.

    `rejected` counts the records that the load rejected and that were not loaded since. `seconds` is the time from its
    beginning to its last commit. `is_active`: a process works on it now. `job` is the job as JSON, None if its sources
    cannot be read again.
    """

    load_id: str
    state: LoadState
    is_active: bool
    owner: str
    client: str
    tables: list[str]
    objects: int
    complete_objects: int
    rows: int
    rejected: int
    bytes_committed: int
    began_at: datetime
    changed_at: datetime
    seconds: float
    job: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftStaging:
    """A staging table that a load left; `lock_key` is the load's lock, `is_own`: the load is this role's."""

    load_id: str
    lock_key: str
    is_own: bool
    number: int
    table: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRejects:
    """How many rejected records of a load have been neither loaded nor discarded."""

    load_id: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedLoads:
    """What a prune has removed: the rows of `loads` loads, `size_bytes` of them, and staging tables."""

    loads: int
    size_bytes: int
    staging: tuple[LeftStaging, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRecord:
    """One object of a load as `penstock loads show` lists it. `bytes_committed` counts decompressed bytes.

    `is_staged`: `rows` counts records in a staging table.
    """

    number: int
    table: str
    uri: str
    version: str | None
    size_bytes: int | None
    is_complete: bool
    is_staged: bool
    rows: int
    suppressed: int
    rejected: int
    bytes_committed: int
