"""Values that describe rejected records: their bytes, the reasons, and how the records of their objects are read."""

from __future__ import annotations

from penstock.frozen import frozen
from penstock.model.server.table import ColumnMap, TableName
from penstock.model.source.dialect import Dialect

# The SQLSTATE (foreign key violation) of a record that refers to a row that does not exist yet. The record is tried
# again after all referenced tables are loaded.
FOREIGN_KEY_VIOLATION = "23503"


@frozen
class Reason:
    """Why a record was rejected. A part is None if it is not known."""

    message: str
    # None also if penstock rejected the record itself.
    sqlstate: str | None = None
    detail: str | None = None
    column: str | None = None


@frozen
class Reject:
    """One rejected record of an object."""

    # The number of the object in the load.
    object_number: int
    # The offset of the record in the decompressed object, in bytes.
    start: int
    # The line on which the record begins, counted from 1.
    line: int
    # The bytes of the record with the line end.
    raw: bytes
    reason: Reason


@frozen
class RecordForm:
    """How one object's records are read and sent, so that a rejected record can be sent again without the object."""

    dialect: Dialect
    column_map: ColumnMap
    table: TableName
    # The encoding of the bytes and of the COPY command.
    encoding: str
    # The object's header record, None if it has none.
    header: bytes | None = None
    allows_suppressed_rows: bool = False
    # If the table is a new one that replaces another, pairs of the present and the final name of the new table and of
    # each of its indexes.
    working_names: tuple[tuple[str, str], ...] = ()
    # The encoding whose byte-order mark is at the start of the object, None without a mark.
    bom: str | None = None


@frozen
class Correction:
    """How many rejected records of one object were stored or suppressed when they were tried again."""

    object_number: int
    # Negative if staged records were rejected, because fewer rows are then stored.
    rows: int
    suppressed: int
    # How the records are read (RecordForm as JSON).
    form: str | None = None


@frozen
class RejectCause:
    """Records of one load that were rejected for the same reason, with the first of them."""

    sqlstate: str | None
    column: str | None
    # The error message without the values that differ from record to record.
    message: str
    count: int
    uri: str
    line: int
    # The message of the first record.
    example: str
    detail: str | None
    raw: bytes


@frozen
class StoredForm:
    """The ledger's record of an object with rejected records."""

    uri: str
    # The table into which the object was loaded.
    table: TableName
    # How the object's records are read (RecordForm as JSON).
    form: str


@frozen
class RejectingLoad:
    """A load that has rejected records."""

    epoch: int
    state: str
    lock_key: str
    # The load's meaning as JSON (see loading/plan/identity.py).
    meaning: str
    # The job as JSON, None if its sources cannot be read again.
    job: str | None


@frozen
class RetryOutcome:
    """The outcome of a retry of rejected records: rows stored, records suppressed by triggers, and records left."""

    load_id: str
    rows: int
    suppressed: int
    left: int
