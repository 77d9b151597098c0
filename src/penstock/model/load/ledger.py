"""Values of the ledger: its records of loads, of objects, and of the committed parts of objects."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from penstock.frozen import frozen
from penstock.model.load.details import UnreadableObject
from penstock.model.server.table import TableName

# A half-open range [start, end) of an object's decompressed bytes, or of the rows of a columnar file.
Range = tuple[int, int]

LoadState = Literal["running", "complete"]

# No CRC-32 has this value, so bytes are never taken for those that were loaded.
UNKNOWN_CHECKSUM = -1

# What a load does with an object; Decision in loading/claim/decide.py explains each.
ObjectAction = Literal["new", "resume", "skip", "left"]

# What the committed ranges of an object count.
LedgerUnit = Literal["bytes", "rows", "object"]


@frozen
class Coverage:
    """The committed ranges of one object: sorted, disjoint, not adjacent.

    `has_start` is true if the object's first record is committed, `has_end` if the last one is. An object is complete
    if both are true and no range is missing between the committed ones.
    """

    ranges: tuple[Range, ...] = ()
    has_start: bool = False
    has_end: bool = False
    rows: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every record of the object is committed."""
        return self.has_start and self.has_end and len(self.ranges) <= 1


@frozen
class CommittedRange:
    """One row of the ledger: the ranges of one object that one transaction committed.

    `ranges` are in ascending order; `start` is the beginning of the first. `checksum` is the CRC-32 of the bytes of the
    ranges in that order, xor the CRC-32 of the object's header record. An object without records has one row, without
    ranges. `records` is the number of records read from the object, `rows` the number of rows stored. The other records
    were suppressed by row triggers, or rejected. If some were rejected, `form` says how the records are read
    (RecordForm as JSON). Of an object that the server imported as a whole (unit 'object'), the range is [0, 1), and the
    checksum is UNKNOWN_CHECKSUM, because its bytes were not read here.
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


@frozen
class LedgerObject:
    """One object of a load, with its target table and version. `version` is None if the source has no versions.

    `uri` is a URL, or a file's path with every symbolic link resolved. `ctime_ns` is the time at which a local file was
    last changed (st_ctime). If it differs when an unfinished load is resumed, the load compares the checksums of the
    ranges that it has committed. `unit` is what the ranges count.
    """

    number: int
    target_oid: int
    target: TableName
    uri: str
    version: str | None
    size_bytes: int | None
    ctime_ns: int | None = None
    unit: LedgerUnit = "bytes"


@frozen
class KnownObject:
    """The ledger's record of an object that is to be loaded, found by its table and URI.

    `load_id` is the load that wrote the record, `identity` the identity of that load. `target_oid` is the table's OID
    in this database. `rows` is the number of the object's committed rows, 0 if its staged records gave none.
    `is_superseded` is true if a later load has truncated or replaced the table, or the table that it is a partition of.
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


@frozen
class LedgerOutlook:
    """What a load would do with each of its objects, in the order of the job, if it ran now.

    `exists` is true if the ledger exists. `resumes` is the id of the load that would be resumed.
    """

    exists: bool
    resumes: str | None
    actions: tuple[ObjectAction, ...]


@frozen
class Claim:
    """The right of this process to run a load; `is_resumed`: the load is not new.

    The steps of the load are lost to this process if the load's epoch changes, and its rows if member `member` has
    ended. `member` is None if rows are written in the name of a load that has ended.
    """

    load_id: str
    epoch: int
    is_resumed: bool
    member: int | None = None


@frozen
class LoaderProcess:
    """A process that loads. `client` names it; a session of it holds the advisory lock `lock` while it lives.

    `lock` is the argument of locks.try_lock.
    """

    client: str
    lock: str


@frozen
class MembersLook:
    """How a load stands for one of its members.

    `claimed` is how many objects are not complete. `held` is how many of these a member has claimed, `free` how many of
    the others this member can read. `others` is how many other members are live. `is_member` is false if another member
    has ended this one. `session_limit` is how
    many sessions all members may have together. `dying` are the members that have died, and whose open transactions the
    server has not ended yet.
    """

    is_complete: bool
    claimed: int
    held: int
    free: int
    others: int
    is_member: bool
    session_limit: int | None
    dying: list[int]


@frozen
class MemberRecord:
    """One process that has loaded rows of a load; `client` is its host and process id.

    `objects` is of how many objects it has committed rows, `claimed` how many it has claimed now. `seen_at` is the
    time of its last commit, `seconds` the time from when it joined to then.
    """

    number: int
    client: str
    is_live: bool
    objects: int
    claimed: int
    rows: int
    began_at: datetime
    seen_at: datetime
    seconds: float

    @property
    def host(self) -> str:
        """Return the host's name."""
        return self.client.rpartition(" ")[0]


@frozen
class FinishedLoad:
    """A load that is complete according to the ledger. Its counts include earlier runs.

    `suppressed`: records that row triggers skipped. `inserted`, `updated`, `duplicates` and `existing`: results of
    merging staging tables, explained at LoadOutcome. `is_local_only`: the wait for a synchronous standby was cancelled,
    so only the primary is known to have the commit. `is_others`: another process has completed the load.
    """

    rows: int
    suppressed: int
    is_local_only: bool
    is_others: bool = False
    inserted: int = 0
    updated: int = 0
    duplicates: int = 0
    existing: int = 0


@frozen
class LandingRecord:
    """The ledger's record of one target of a load: whether it was truncated, and which table the load created for it.

    `target` is the target table, `number` its number in the job. `kind` is the purpose of the created table; it is None
    if the target was truncated and no table was created. For a replacement, `definition` is a digest of the definition
    of the table that it will replace.
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


@frozen
class LandedTarget:
    """A target whose records were first copied into another table. `number` is its number in the job.

    `landing_schema` and `landing_table` named that other table. `schema` and `table` name the target's table now, None
    if it does not exist any more.
    """

    number: int
    kind: Literal["staging", "replacement"]
    landing_schema: str
    landing_table: str
    target_oid: int
    schema: str | None
    table: str | None


@frozen
class LandedCounts:
    """How many of the `staged` records of one target were inserted, updated or not stored at the end of the load.

    `target_oid` is the table's OID after the load: a replaced table has a new one. With a transform, `inserted` counts
    the rows that the transform's statement stored.
    """

    number: int
    target_oid: int
    staged: int = 0
    inserted: int = 0
    updated: int = 0
    duplicates: int = 0
    existing: int = 0
    suppressed: int = 0


@frozen
class StayingRows:
    """How many rows of a load are in a table, according to the ledger."""

    table: str
    rows: int


@frozen
class LoadRecord:
    """One load as `penstock loads` lists it. Counts are of committed rows, times are those of the server's clock.

    `rejected` counts the records that the load rejected and that have not been loaded since. `seconds` is the time from
    the load's beginning to its last commit. `is_active` is true if a process is running the load now. `job` is the job
    as JSON, None if the sources cannot be read again. `unreadable` are the objects that it could not read to their end:
    a complete load has nothing of them.
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
    unreadable: tuple[UnreadableObject, ...] = ()


@frozen
class LeftStaging:
    """A staging table that a load left. `lock_key` is the load's lock. `is_own` is true if this role ran the load."""

    load_id: str
    lock_key: str
    is_own: bool
    number: int
    table: str
    size_bytes: int


@frozen
class LeftRejects:
    """How many rejected records of a load have been neither loaded nor discarded."""

    load_id: str
    count: int


@frozen
class PrunedLoads:
    """What a prune has removed: ledger rows of `loads` loads, with `size_bytes` in all, and staging tables."""

    loads: int
    size_bytes: int
    staging: tuple[LeftStaging, ...]


@frozen
class ObjectRecord:
    """One object of a load as `penstock loads show` lists it. `bytes_committed` counts decompressed bytes.

    Of an object that the server imported, it counts stored bytes. If `is_staged` is true, `rows` counts records in a
    staging table.
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


@frozen
class TableTotals:
    """What the ledger knows of all loads into one table. Times are seconds of Unix time.

    `last_success_s` is when the last complete load ended, None if none is complete. `rows` and `rejected` are the sums
    of all recorded loads; records that were rejected and loaded later are rows. `active` of the `unfinished` loads are
    worked on now; `oldest_unfinished_s` is when the oldest of them began.
    """

    table: str
    last_success_s: float | None
    rows: int
    rejected: int
    unfinished: int
    active: int
    oldest_unfinished_s: float | None
