"""Records that were rejected: what each was, why, and how its object's records are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.model.server.table import ColumnMap, TableName
    from penstock.model.source.dialect import Dialect

# The code of a record that refers to one that is not there (yet): it is tried again once all parents have landed.
FOREIGN_KEY_VIOLATION = "23503"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a record was refused; each part None where nobody told it. `sqlstate` is None where penstock refused it."""

    message: str
    sqlstate: str | None = None
    detail: str | None = None
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """One record of an object, by the object's number in the load.

    `raw` are its bytes with the line end, `start` where they begin in the decompressed object, `line` the line that
    they begin on, from 1.
    """

    object_number: int
    start: int
    line: int
    raw: bytes
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordForm:
    """How one object's records are read and sent, so that a rejected one can be sent again without the object.

    `header` is the object's header record, None without one; `encoding` is that of the bytes and the COPY command.
    `bom` is the encoding whose byte-order mark the object begins with.
    Where `table` is made to replace another, `working_names` pairs its name and its indexes' with what they will be.
    """

    dialect: Dialect
    column_map: ColumnMap
    table: TableName
    encoding: str
    header: bytes | None = None
    allows_suppressed_rows: bool = False
    working_names: tuple[tuple[str, str], ...] = ()
    bom: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What became of rejected records of one object that were tried again: how many were stored or suppressed.

    Negative: so many staged ones were rejected. `form` tells how these are read, as JSON.
    """

    object_number: int
    rows: int
    suppressed: int
    form: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectCause:
    """Rejected records of one load that were refused for the same reason, and the first of them.

    `message` has no values in it where they differ; `example` is the first one's own.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """An object with rejected records, and how its records are read, as JSON."""

    uri: str
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectingLoad:
    """A load that has put records aside. `job` is the job as JSON, None where its sources cannot be read again."""

    epoch: int
    state: str
    lock_key: str
    job: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOutcome:
    """What came of trying rejected records again: rows stored, records suppressed by triggers, and those left."""

    load_id: str
    rows: int
    suppressed: int
    left: int
