"""Values that describe rejected records: their bytes, the reasons, and how the records of their objects are read."""

from __future__ import annotations

from penstock.frozen import frozen
from penstock.model.server.table import ColumnMap, TableName
from penstock.model.source.dialect import Dialect

# SQLSTATE (foreign key violation) of a record whose referenced row does not exist yet. The record is tried again after
# all referenced tables are loaded.
FOREIGN_KEY_VIOLATION = "23503"


@frozen
class Reason:
    """Why a record was rejected; unknown parts are None. `sqlstate` is None if penstock rejected the record itself."""

    message: str
    sqlstate: str | None = None
    detail: str | None = None
    column: str | None = None


@frozen
class Reject:
    """One rejected record of an object; `object_number` is the object's number in the load.

    `raw` has the record's bytes with the line end. `start` is the offset of `raw` in the decompressed object, in bytes.
    `line` is the line on which the record begins, counted from 1.
    """

    object_number: int
    start: int
    line: int
    raw: bytes
    reason: Reason


@frozen
class RecordForm:
    """How one object's records are read and sent, so that a rejected record can be sent again without the object.

    `header` is the object's header record, None if it has none. `encoding` is the encoding of the bytes and of the COPY
    command. `bom` is the encoding whose byte-order mark the object begins with, None without a mark. If `table` is a
    new table that replaces another, `working_names` pairs the names of the new table and its indexes with their final
    names.
    """

    dialect: Dialect
    column_map: ColumnMap
    table: TableName
    encoding: str
    header: bytes | None = None
    allows_suppressed_rows: bool = False
    working_names: tuple[tuple[str, str], ...] = ()
    bom: str | None = None


@frozen
class Correction:
    """How many rejected records of one object were stored or suppressed when they were tried again.

    `rows` is negative if staged records were rejected: that many fewer are stored. `form` says how the records are read
    (RecordForm as JSON).
    """

    object_number: int
    rows: int
    suppressed: int
    form: str | None = None


@frozen
class RejectCause:
    """Records of one load that were rejected for the same reason, with the first of them.

    `message` is the error message without the values that differ from record to record. `example` is the message of the
    first record.
    """

    sqlstate: str | None
    column: str | None
    message: str
    count: int
    uri: str
    line: int
    example: str
    detail: str | None
    raw: bytes


@frozen
class StoredForm:
    """The ledger's record of an object with rejected records, which was loaded into `table`.

    `form` says how its records are read, as JSON.
    """

    uri: str
    table: TableName
    form: str


@frozen
class RejectingLoad:
    """A load that has rejected records. `job` is the job as JSON, None if its sources cannot be read again.

    `meaning` is the load's meaning as JSON (see loading/plan/identity.py).
    """

    epoch: int
    state: str
    lock_key: str
    meaning: str
    job: str | None


@frozen
class RetryOutcome:
    """The outcome of a retry of rejected records: rows stored, records suppressed by triggers, and records left."""

    load_id: str
    rows: int
    suppressed: int
    left: int
