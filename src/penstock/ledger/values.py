"""Values of the ledger: its records of loads, of objects, and of the committed parts of objects."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Literal

from penstock.core.slotted import slotted
from penstock.core.units import count_nouns
from penstock.core.values.accounts import UnreadableObject
from penstock.core.values.source import Range
from penstock.core.values.table import TableName

LoadState = Literal["running", "complete"]

# The checksum of bytes that were not read here. It is not a CRC-32, so no bytes can have this checksum.
UNKNOWN_CHECKSUM = -1

# What a load does with an object; ObjectDecision in loading/claim/decide.py explains each.
ObjectAction = Literal["new", "resume", "skip", "left"]

# What the committed ranges of an object count.
LedgerUnit = Literal["bytes", "rows", "object"]


@slotted
class Coverage:
    """The committed ranges of one object.

    An object is complete if its first and last records are committed and no range is missing between the committed
    ones.
    """

    # The committed ranges, which are sorted, disjoint and not adjacent.
    ranges: tuple[Range, ...] = ()
    # Whether the object's first record is committed.
    has_start: bool = False
    # Whether the object's last record is committed.
    has_end: bool = False
    rows: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every record of the object is committed."""
        return self.has_start and self.has_end and len(self.ranges) <= 1


@slotted
class CommittedRange:
    """One row of the ledger: the ranges of one object that one transaction committed.

    Ranges count bytes of the decompressed object, or rows of a columnar file. A row without ranges is that of an object
    without records, or of the end of an object whose records are all in other rows. If the server imported the object
    as a whole (unit 'object'), the range is [0, 1).
    """

    object_number: int
    # The start of the first range.
    start: int
    # The committed ranges, in ascending order.
    ranges: tuple[Range, ...]
    has_start: bool
    has_end: bool
    # The records read from the object.
    records: int
    # The rows that were stored. Row triggers suppressed the other records, or the load rejected them.
    rows: int
    suppressed: int
    # The CRC-32 of the bytes of the ranges in their order, xor the CRC-32 of the object's header record.
    # UNKNOWN_CHECKSUM if the server imported the object, because its bytes were not read here.
    checksum: int
    rejected: int = 0
    # How the records are read (RecordForm as JSON) if some were rejected, otherwise None.
    form: str | None = None


@slotted
class LedgerObject:
    """One object of a load, with its target table and version."""

    number: int
    target_oid: int
    target: TableName
    # A URL, or a file's path with every symbolic link resolved.
    uri: str
    # The object's version, None if the source has no versions.
    version: str | None
    size_bytes: int | None
    # When a local file was last changed (st_ctime). If it differs when an unfinished load is resumed, the load compares
    # the checksums of the ranges that it has committed.
    ctime_ns: int | None = None
    # What the ranges count.
    unit: LedgerUnit = "bytes"


@slotted
class KnownObject:
    """The ledger's record of an object that is to be loaded, found by its table and URI."""

    # The load that wrote the record.
    load_id: str
    # The identity of that load.
    identity: str
    state: LoadState
    number: int
    # The table's OID in this database.
    target_oid: int
    uri: str
    version: str | None
    # The object's committed rows. 0 if its records were staged and no rows were made of them.
    rows: int
    # Whether a later load has truncated or replaced the table, or the table that it is a partition of.
    is_superseded: bool = False
    size_bytes: int | None = None
    ctime_ns: int | None = None


@slotted
class LedgerOutlook:
    """What a load would do with each of its objects if it ran now."""

    # Whether the ledger exists.
    exists: bool
    # The id of the load that would be resumed, None if the load would be new.
    resumes: str | None
    # What the load would do with each object, in the order of the job's objects.
    actions: tuple[ObjectAction, ...]


@slotted
class Claim:
    """The right of this process to run a load.

    It ends when another process raises the load's epoch, which ends the right to run the load's steps, or ends the
    member, which ends the right to send rows.
    """

    load_id: str
    epoch: int
    # Whether the load was begun earlier.
    is_resumed: bool
    # The number of the member that sends rows; None if rows are written in the name of a load that has ended.
    member: int | None = None


@slotted
class LoaderProcess:
    """A process that loads. One of its sessions holds an advisory lock while the process lives."""

    # The name of the process.
    client: str
    # The lock, as the argument of locks.try_lock.
    lock: str


@slotted
class MembersState:
    """What a member of a load by several hosts sees of it: its objects, the other members and the limit of sessions."""

    is_complete: bool
    # The objects that are not complete.
    claimed: int
    # How many of the objects that are not complete a member has claimed.
    held: int
    # How many of the unclaimed objects this member has in its sources.
    free: int
    # The other members that are live.
    others: int
    # False if another member has ended this one.
    is_member: bool
    # How many sessions all members together may have; None if there is no limit.
    session_limit: int | None
    # The dead members (members.number) with transactions that the server has not ended yet.
    dying: list[int]


@slotted
class MemberRecord:
    """One process that has loaded rows of a load."""

    number: int
    # The host and the process id.
    client: str
    is_live: bool
    # The number of objects of which the process has committed rows.
    objects: int
    # The number of objects that the process has claimed now.
    claimed: int
    rows: int
    began_at: datetime
    # The time of the process's last commit.
    seen_at: datetime
    # The seconds from the time at which the process joined to its last commit.
    seconds: float

    @property
    def host(self) -> str:
        """Return the host's name."""
        return self.client.rpartition(" ")[0]


@slotted
class FinishedLoad:
    """A load that is complete according to the ledger. Its counts include earlier runs."""

    rows: int
    # Records that row triggers skipped.
    suppressed: int
    # Whether only the primary is known to have the commit, because the wait for a synchronous standby was cancelled.
    is_local_only: bool
    # Whether another process has completed the load.
    is_others: bool = False
    # This and the next three fields are the results of merging staging tables, as in LoadOutcome.
    inserted: int = 0
    updated: int = 0
    duplicates: int = 0
    existing: int = 0


@slotted
class LandingRecord:
    """What the ledger records of one target: whether it was truncated, and which table was created for its records."""

    # The target's number in the job.
    number: int
    target_oid: int
    target: TableName
    is_truncated: bool = False
    # What the created table is for; None if the target was truncated and no table was created.
    kind: Literal["staging", "replacement"] | None = None
    schema: str | None = None
    table: str | None = None
    oid: int | None = None
    # For a replacement, a digest of the definition of the table that it will replace; for a staging table, its types.
    definition: str | None = None


@slotted
class LandedTarget:
    """A target whose records were copied into a staging or replacement table."""

    # The target's number in the job.
    number: int
    kind: Literal["staging", "replacement"]
    # The name of that other table.
    landing_schema: str
    landing_table: str
    target_oid: int
    # The present name of the target's table, None if the table does not exist any more.
    schema: str | None
    table: str | None


@slotted
class MergeCounts:
    """How many staged records of one target were inserted, updated and so on. `staged` is the sum of the others."""

    staged: int = 0
    # Records that became new rows. With a transform, the rows that the transform's statement stored. If triggers on
    # both INSERT and UPDATE may have skipped records, only the sum of this count and the next is correct.
    inserted: int = 0
    # Records that updated a row with their key.
    updated: int = 0
    # Records that were dropped because another staged record with the same key was chosen.
    duplicates: int = 0
    # Records that were skipped because the table already had a row with the same key.
    existing: int = 0
    # Records that triggers skipped.
    suppressed: int = 0

    def landed(self, *, number: int, target_oid: int) -> LandedCounts:
        """Return these counts as those of a load's target."""
        return LandedCounts(number=number, target_oid=target_oid, **asdict(self))


@slotted
class LandedCounts(MergeCounts):
    """How many rows and records of one target were inserted, updated, rejected and so on, at the end of the load."""

    number: int
    # The table's OID after the load; a replaced table has a new one.
    target_oid: int


@slotted
class StayingRows:
    """How many rows of a load are in a table, according to the ledger."""

    table: str
    rows: int
    # The records that row triggers have skipped.
    suppressed: int

    @property
    def elsewhere(self) -> str:
        """Return what a message about the rows says of skipped records, an empty text if there are none."""
        skipped = f"; row triggers skipped {count_nouns(self.suppressed, 'record')}, and may have stored them elsewhere"
        return skipped if self.suppressed else ""


@slotted
class LoadRecord:
    """One load as `penstock loads` lists it. Counts are of committed rows, times are those of the server's clock."""

    load_id: str
    state: LoadState
    # Whether a process is running the load now.
    is_active: bool
    owner: str
    client: str
    tables: list[str]
    objects: int
    complete_objects: int
    rows: int
    # Records that the load rejected and that have not been loaded since.
    rejected: int
    bytes_committed: int
    began_at: datetime
    changed_at: datetime
    # The seconds from the load's start to its last commit.
    seconds: float
    # The job as JSON, None if the sources cannot be read again.
    job: str | None
    # The objects that could not be read to their end. A complete load has loaded nothing of them.
    unreadable: tuple[UnreadableObject, ...] = ()


@slotted
class LeftStaging:
    """A staging or replacement table of a load that is not running."""

    load_id: str
    # The lock of the load.
    lock_key: str
    # Whether this role ran the load.
    is_own: bool
    number: int
    table: str
    size_bytes: int


@slotted
class LeftRejects:
    """How many rejected records of a load have been neither loaded nor discarded."""

    load_id: str
    count: int


@slotted
class PrunedLoads:
    """What a prune has removed: ledger rows and staging tables."""

    # How many loads the removed ledger rows belonged to.
    loads: int
    # The size of the removed ledger rows.
    size_bytes: int
    staging: tuple[LeftStaging, ...]


@slotted
class ObjectRecord:
    """One object of a load as `penstock loads show` lists it."""

    number: int
    table: str
    uri: str
    version: str | None
    size_bytes: int | None
    is_complete: bool
    # Whether the rows counted here are records in a staging table.
    is_staged: bool
    rows: int
    suppressed: int
    rejected: int
    # The committed bytes: decompressed ones, or stored ones if the server imported the object.
    bytes_committed: int
    # The records that were cut out of the object.
    records: int = 0
    # How much of the object is committed more than once, in bytes or rows. It is 0 unless the ledger was damaged.
    repeated: int = 0
    # When a local file was last changed (st_ctime).
    ctime_ns: int | None = None


@slotted
class TableTotals:
    """What the ledger records about all loads into one table. Times are seconds of Unix time."""

    table: str
    # When the last complete load ended; None if none is complete.
    last_success_s: float | None
    # The rows of all recorded loads. Records that were rejected and loaded later count as rows.
    rows: int
    # The rejected records of all recorded loads.
    rejected: int
    unfinished: int
    # How many of the unfinished loads are running now.
    active: int
    # When the oldest unfinished load began; None if all are complete.
    oldest_unfinished_s: float | None
