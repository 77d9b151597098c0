"""What the ledger knows of loads, objects and what is committed of them."""

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
    """What is committed of one object: sorted, disjoint, not touching.

    `has_start` and `has_end`: the object's first record, and its last, are among them. An object is complete where both
    are and nothing is missing between them.
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
    """One row of the ledger: what one transaction committed of one object.

    `ranges` are in ascending order and `checksum` is the CRC-32 of their bytes, one after another, xor that of the
    object's header record. `start` is where the first begins; an object without
    records has one row, without ranges. `records` were cut; `rows` were stored, the rest suppressed by row triggers or
    rejected. `form` tells how the records are read, where some were rejected.
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
    """One object of a load: where it goes, and which version of it. `version` is None where the source tells none.

    `uri` is a file's path with every symbolic link resolved. `ctime_ns` is a local file's time of change: an unfinished
    load compares what it has committed if that has moved.
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
    """What the ledger knows of an object that is to be loaded, by its table and the URI.

    `load_id` is the load it belongs to, `identity` that load's. `target_oid` is what the table has here. `rows` are
    what is committed of the object, none where nothing came of staged records. `is_superseded`: a later load has
    truncated or replaced the table, or what it is a partition of.
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
    """What a load would do with its objects, in the order of the job, by what the ledger knows of them now.

    `exists`: there is a ledger. `resumes` is the load that would be resumed.
    """

    exists: bool
    resumes: str | None
    actions: tuple[Literal["new", "resume", "skip"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A load that is ours to carry out as long as its epoch is `epoch`; `is_resumed` where it had begun before."""

    load_id: str
    epoch: int
    is_resumed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedLoad:
    """A load that the ledger says is complete: all of its rows, this run's and earlier ones'.

    `inserted`, `updated`, `duplicates` and `existing` are what merges from staging tables did. `is_local_only`: the
    wait for a synchronous standby was cancelled, so only the primary is known to have it. `is_others`: another process
    has completed it.
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
    """What a load has made for one of its targets, table `target`, whose place in the job is `number`.

    `kind` is what the table is for; None where the target was truncated and nothing made. `definition` is a digest of
    the table that a replacement was made for.
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
    """A target of a load whose records landed elsewhere first: its place in the job, its table, its objects."""

    number: int
    target_oid: int
    schema: str
    table: str
    objects: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedCounts:
    """What became of the `staged` records of one target at the load's end.

    `target_oid` is the table's from then on: a replaced table has another one. With a transform, `inserted` are the
    rows that its statement stored.
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
    """Rows of a load that are in a table, as far as the ledger knows."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """One load as `penstock loads` lists it: what is committed; times are the server's.

    `rejected` are the records that it rejected and that were not loaded since. `seconds` lie between its beginning and
    the last commit. `is_active`: a process works on it now. `job` is the job as
    JSON, None where its sources cannot be read again.
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
    """A copy of records that a load was to merge; `lock_key` is its load's, `is_own`: that is this role's."""

    load_id: str
    lock_key: str
    is_own: bool
    number: int
    table: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRejects:
    """How many rejected records of a load are neither loaded nor discarded."""

    load_id: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedLoads:
    """What a prune has removed: of how many loads, so many bytes of rows in the ledger, and which staging tables."""

    loads: int
    size_bytes: int
    staging: tuple[LeftStaging, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRecord:
    """One object of a load as `penstock loads show` lists it. `bytes_committed` are decompressed bytes.

    `is_staged`: its rows are records that were copied into a staging table.
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
