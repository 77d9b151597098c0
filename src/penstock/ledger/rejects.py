"""Writes rejected records to the ledger, reads them, and deletes them when they are stored in their table.

A role reads only records of its own loads (policy rejects_owner). Methods raise ServerError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, LiteralString

from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.recorded import to_json
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_as, fetch_one, fetch_rows, run_query
from penstock.core.units import MIB
from penstock.core.values.dialect import Dialect
from penstock.core.values.notice import Notice
from penstock.core.values.table import ColumnMap, TableName
from penstock.ledger.listing import refuse_at_work
from penstock.ledger.locks import compose_query
from penstock.ledger.schema import has_ledger, naming_ledger

if TYPE_CHECKING:
    import psycopg

# The SQLSTATE (foreign key violation) of a record that refers to a row that does not exist yet. The record is tried
# again after all referenced tables are loaded.
FOREIGN_KEY_VIOLATION = "23503"


@slotted
class Reason:
    """Why a record was rejected. A part is None if it is not known."""

    message: str
    # The server's code, None also if penstock rejected the record itself.
    sqlstate: str | None = None
    detail: str | None = None
    column: str | None = None


@slotted
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


@slotted
class RecordForm:
    """How an object's records are read, so that one of them can be sent again without the object."""

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


@slotted
class Correction:
    """How many rejected records of one object were stored or suppressed when they were tried again."""

    object_number: int
    # Negative if staged records were rejected, because fewer rows are then stored.
    rows: int
    suppressed: int
    # How the records are read (RecordForm as JSON), or which of them were corrected (`note_corrected`).
    form: str | None = None


@slotted
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


@slotted
class StoredForm:
    """The table of an object with rejected records, and how these records are read."""

    uri: str
    # The table into which the object was loaded.
    table: TableName
    # How the object's records are read (RecordForm as JSON).
    form: str


@slotted
class RejectingLoad:
    """A load that has rejected records."""

    epoch: int
    state: str
    lock_key: str
    # The load's meaning as JSON (see loading/plan/identity.py).
    meaning: str
    # The job as JSON, None if its sources cannot be read again.
    job: str | None


@slotted
class RetryOutcome:
    """The outcome of a retry of rejected records: rows stored, records suppressed by triggers, and records left.

    `warnings` are about sequences that were not advanced.
    """

    load_id: str
    rows: int
    suppressed: int
    left: int
    warnings: tuple[Notice, ...] = ()


# A number greater than any object's number.
_BEHIND_ALL = 2**31 - 1

# The key in `form` of a row of table ranges that only names corrected records. reject_forms.sql skips such rows.
_CORRECTED = "corrected"

# About how many bytes of memory a record needs in addition to its raw bytes. `read` adds this to each record's length
# when it applies `limit_bytes`.
_OVERHEAD_BYTES = 200


class RejectStore:
    """The rejected records of one load, in the ledger.

    Methods for the open transaction of a load raise psycopg.Error. The others raise ServerError.
    """

    def __init__(self, schema: str, load_id: str) -> None:
        self._schema = schema
        self._load_id = load_id

    # ---------------------------------------------------------------- within a transaction that loads

    def insert(self, connection: psycopg.Connection[Any], rejects: Sequence[Reject]) -> None:
        """Insert rejected records into the ledger, in the open transaction."""
        self._run(connection, "ledger/insert_rejects", rejects=_describe_all(rejects, connection))

    def remove(self, connection: psycopg.Connection[Any], rejects: Sequence[Reject]) -> int:
        """Delete from the ledger records that the open transaction has stored in their table.

        Return how many of them the ledger had.
        """
        keys = to_json([{"object": reject.object_number, "start": reject.start} for reject in rejects])
        return self._run(connection, "ledger/delete_rejects", rejects=keys).rowcount

    def renew(self, connection: psycopg.Connection[Any], rejects: Sequence[Reject]) -> None:
        """Update the reasons and the bytes of records that were refused again, in the open transaction."""
        self._run(connection, "ledger/renew_rejects", rejects=_describe_all(rejects, connection))

    def correct(self, connection: psycopg.Connection[Any], corrections: Sequence[Correction]) -> None:
        """Correct the counts of a load after rejected records were tried again, in the open transaction.

        Records that counted as rejected are now stored, or the reverse if the numbers are negative. Rows are added to
        table ranges, and the row count of a complete load is changed.
        """
        self._run(
            connection,
            "ledger/correct_ranges",
            objects=[item.object_number for item in corrections],
            rows=[item.rows for item in corrections],
            suppressed=[item.suppressed for item in corrections],
            forms=[item.form for item in corrections],
        )
        # Do not change the time at which the load ended: if the table was truncated after that time, the load's other
        # rows are still gone.
        total = self._compose(
            "UPDATE ONLY {loads} SET rows = rows + %s, login = CASE WHEN login = SESSION_USER THEN login END"
            " WHERE id = %s AND state = 'complete'"
        )
        connection.execute(total, [sum(item.rows for item in corrections), self._load_id])

    def note_corrected(self, connection: psycopg.Connection[Any], starts: Mapping[int, Sequence[int]]) -> None:
        """Record which rejected records a user has corrected, in the open transaction.

        `starts` has the offsets of the records, in bytes of the decompressed object, by the object's number.
        """
        corrections = [
            Correction(object_number=number, rows=0, suppressed=0, form=to_json({_CORRECTED: sorted(some)}))
            for number, some in starts.items()
        ]
        self.correct(connection, corrections)

    # ---------------------------------------------------------------- what there is

    def count(self, connection: Connection, *, but_code: str | None = None) -> int:
        """Return how many rejected records are not stored yet, without those that have the SQLSTATE `but_code`."""
        query = "SELECT count(*) FROM ONLY {rejects} WHERE load = %s AND sqlstate IS DISTINCT FROM %s"
        return self._fetch_count(connection, query, [self._load_id, but_code])

    def discard(self, connection: Connection) -> int:
        """Delete the rejected records that are not stored yet, and return how many.

        The counts of the load still include them. Raises TargetError if the load is running: it may be about to retry
        or count them.
        """
        query = self._compose("DELETE FROM ONLY {rejects} WHERE load = %s")
        with in_transaction(connection, "discarding rejected records"):
            refuse_at_work(connection, self._schema, self._load_id)
            return connection.execute(query, [self._load_id]).rowcount

    def count_rejected(self, connection: Connection) -> int:
        """Return how many records the load has rejected, including those that this role may not read."""
        query = "SELECT coalesce(sum(rejected), 0) FROM ONLY {ranges} WHERE load = %s"
        return self._fetch_count(connection, query, [self._load_id])

    def read_targets(self, connection: Connection) -> list[int]:
        """Return the OIDs of the tables into which the load has objects."""
        with translate_errors("looking for the tables of the load"):
            return [oid for (oid,) in self._run(connection, "ledger/tables_of_load") if oid is not None]

    def find_emptied(self, connection: Connection) -> tuple[str, str] | None:
        """Return a table of the load that a later load has emptied or replaced, and that load's id, or None."""
        with translate_errors("looking for later loads"):
            return self._run(connection, "ledger/emptied_since").fetchone()

    def read_starts(self, connection: Connection, object_number: int) -> list[int]:
        """Return the offsets of an object's rejected records, ascending, in bytes of the decompressed object."""
        query = self._compose("SELECT start FROM ONLY {rejects} WHERE load = %s AND object = %s ORDER BY start")
        with translate_errors("reading positions of rejected records"):
            rows = connection.execute(query, [self._load_id, object_number]).fetchall()
        return [start for (start,) in rows]

    def read_corrected(self, connection: Connection) -> dict[int, list[int]]:
        """Return the offsets of the records that a user has corrected, by the object's number.

        Offsets are in bytes of the decompressed object. The same offset may occur twice.
        """
        query = self._compose(
            "SELECT r.object, pg_catalog.array_agg(c.start::bigint) FROM ONLY {ranges} AS r,"
            " pg_catalog.jsonb_array_elements_text(r.form -> {corrected}) AS c (start) WHERE r.load = %s GROUP BY 1",
            corrected=sql.Literal(_CORRECTED),
        )
        with translate_errors("reading positions of corrected records"):
            return dict(connection.execute(query, [self._load_id]).fetchall())

    def _compose(self, text: LiteralString, **parts: sql.Composable) -> sql.Composed:
        return compose_query(text, self._schema, **parts)

    def _run(
        self, connection: psycopg.Connection[Any], query: str, **parameters: object
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        return run_query(connection, query, ledger=self._schema, load=self._load_id, **parameters)

    def _fetch_count(self, connection: Connection, query: LiteralString, values: Sequence[Any]) -> int:
        with translate_errors("counting rejected records"):
            return int(fetch_one(connection, self._compose(query), values)[0])

    def read(
        self,
        connection: Connection,
        *,
        beyond: tuple[int, int] | None = None,
        objects: Sequence[int] | None = None,
        codes: Sequence[str] | None = None,
        is_backwards: bool = False,
        limit_bytes: int = 8 * MIB,
    ) -> list[Reject]:
        """Return rejected records in the order of objects and offsets, at most `limit_bytes`, but at least one record.

        `beyond` is an object number and an offset: only records after it are returned. `objects` are the numbers of the
        objects whose records are returned, and `codes` are the SQLSTATEs of the records that are returned. With
        `is_backwards`, the order is descending, and only records before `beyond` are returned.
        """
        query = self._compose(
            """
            SELECT object, start, line, "column", sqlstate, message, detail, raw
              FROM (
                       SELECT n.*, sum(pg_catalog.length(n.raw) + %(overhead)s) OVER w AS total,
                              pg_catalog.row_number() OVER w AS number
                         FROM (
                                  -- At most as many as fit; the key's index returns them in order.
                                  SELECT r.*
                                    FROM ONLY {rejects} AS r
                                   WHERE r.load = %(load)s
                                     AND (r.object, r.start) {beyond} (%(object)s, %(start)s)
                                     AND (%(objects)s::integer[] IS NULL OR r.object = ANY (%(objects)s))
                                     AND (%(codes)s::text[] IS NULL OR r.sqlstate = ANY (%(codes)s))
                                   ORDER BY r.object {order}, r.start {order}
                                   LIMIT %(limit)s / %(overhead)s + 1
                              ) AS n
                       WINDOW w AS (ORDER BY n.object {order}, n.start {order})
                   ) AS r
             WHERE r.total <= %(limit)s
                OR r.number = 1
             ORDER BY r.number
            """,
            beyond=sql.SQL("<" if is_backwards else ">"),
            order=sql.SQL("DESC" if is_backwards else "ASC"),
        )
        number, start = beyond or ((_BEHIND_ALL, 0) if is_backwards else (-1, 0))
        values = {"load": self._load_id, "object": number, "start": start, "codes": codes and list(codes)}
        values |= {"limit": limit_bytes, "overhead": _OVERHEAD_BYTES, "objects": objects and list(objects)}
        with translate_errors("reading rejected records"):
            rows = connection.execute(query, values).fetchall()
        return [
            Reject(
                object_number=number,
                start=start,
                line=line,
                raw=raw,
                reason=Reason(message=message, sqlstate=sqlstate, detail=detail, column=column),
            )
            for number, start, line, column, sqlstate, message, detail, raw in rows
        ]

    def read_all(self, connection: Connection, *, objects: Sequence[int] | None = None) -> Iterator[list[Reject]]:
        """Yield all records, or those of some objects, a few MiB at a time."""
        beyond = None
        while rejects := self.read(connection, beyond=beyond, objects=objects):
            yield rejects
            beyond = rejects[-1].object_number, rejects[-1].start

    def read_causes(self, connection: Connection) -> list[RejectCause]:
        """Return the causes of rejected records, the most frequent first."""
        with translate_errors("reading rejected records"):
            return fetch_rows(connection, "ledger/reject_causes", RejectCause, ledger=self._schema, load=self._load_id)

    def read_load(self, connection: Connection) -> RejectingLoad | None:
        """Return the load of these rejected records, or None if the ledger does not have it."""
        query = self._compose(
            "SELECT epoch, state, lock_key, meaning::text AS meaning, job::text AS job FROM ONLY {loads} WHERE id = %s"
        )
        with translate_errors("reading the load"):
            return next(iter(fetch_as(connection, RejectingLoad, query, [self._load_id])), None)

    def read_forms(self, connection: Connection) -> dict[int, StoredForm]:
        """Return how the records of each object with rejected records are read, by the object's number."""
        with translate_errors("reading the dialect of rejected records"):
            rows = self._run(connection, "ledger/reject_forms").fetchall()
        return {
            number: StoredForm(uri=uri, table=TableName(schema=schema or None, name=table), form=form)
            for number, uri, schema, table, form in rows
        }


def find_latest(connection: Connection, schema: str) -> str | None:
    """Return the id of the newest load with rejected records that this role may read, or None. Raises ServerError."""
    if not has_ledger(connection, schema):
        return None
    with naming_ledger(schema), translate_errors("looking for rejected records"):
        row = run_query(connection, "ledger/latest_rejecting", ledger=schema).fetchone()
    return None if row is None else str(row[0])


# The SQLSTATE of a record that this process could not send. The reason may quote any character of the file.
_NOT_SENT = "22P04"


def _describe_all(rejects: Sequence[Reject], connection: psycopg.Connection[Any]) -> str:
    """Return records as one JSON text, because psycopg is slow with arrays of many elements.

    In a reason, characters that the database may lack are escaped.
    """
    has_all = connection.info.parameter_status("server_encoding") in ("UTF8", "SQL_ASCII")
    return to_json(
        [
            {
                "object": reject.object_number,
                "start": reject.start,
                "line": reject.line,
                "raw": reject.raw.hex(),
            }
            | _describe(reject.reason, is_ascii=not has_all and reject.reason.sqlstate == _NOT_SENT)
            for reject in rejects
        ]
    )


def _describe(reason: Reason, *, is_ascii: bool) -> dict[str, Any]:
    message = reason.message.encode("ascii", "backslashreplace").decode() if is_ascii else reason.message
    return {
        "column": reason.column,
        "sqlstate": reason.sqlstate,
        "message": message,
        "detail": reason.detail,
    }
