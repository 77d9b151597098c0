"""Reads and records what is committed of a load's objects: ranges of their bytes, and which objects are complete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import sql
from psycopg.rows import kwargs_row

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import NOT_NULL_VIOLATION, ServerReport, translate_errors
from penstock.core.sql import fetch_rows, run_query
from penstock.core.values.source import Range
from penstock.ledger.locks import compose_query
from penstock.ledger.values import UNKNOWN_CHECKSUM, Claim, CommittedRange, Coverage

_RANGE = re.compile(r"\[(\d+),(\d+)\)")

# The statement that makes this transaction durable: it turns synchronous_commit on if it is off. WAL is flushed in
# order, so all earlier transactions become durable too.
BE_DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', true)"
    " WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)


def has_all(connection: Connection, schema: str, load_id: str) -> bool:
    """Return whether every record of every object of a load is committed. Raises ServerError."""
    with translate_errors("reading what is missing"):
        return run_query(connection, "ledger/has_all", ledger=schema, load=load_id).fetchone() == (True,)


def read_coverage(
    connection: Connection, schema: str, load_id: str, *, numbers: Sequence[int] | None = None
) -> dict[int, Coverage]:
    """Return what is committed of the objects of a load, by the object's number. Raises ServerError.

    `numbers` selects objects; by default all objects of the load are returned.
    """
    chosen = None if numbers is None else list(numbers)
    with translate_errors("reading what is committed"):
        rows = run_query(connection, "ledger/coverage", ledger=schema, load=load_id, numbers=chosen).fetchall()
    return {
        number: Coverage(ranges=_parse_ranges(ranges), has_start=has_start, has_end=has_end, rows=int(count))
        for number, ranges, has_start, has_end, count in rows
    }


class OtherObject(NamedTuple):
    """An object of a load that is not among this process's sources. `target_oid` is None if it has no table."""

    number: int
    uri: str
    target_oid: int | None


def find_others(connection: Connection, schema: str, load_id: str, numbers: Sequence[int]) -> list[OtherObject]:
    """Return the objects of a load whose numbers are not among `numbers`. Raises ServerError."""
    with translate_errors("looking for objects that do not exist any more"):
        return fetch_rows(connection, "ledger/others", OtherObject, ledger=schema, load=load_id, numbers=list(numbers))


def read_ranges(connection: Connection, schema: str, load_id: str, number: int) -> list[CommittedRange]:
    """Return what each transaction has committed of one object: the object's rows of table ranges, by their start.

    Raises ServerError.
    """
    query = compose_query(
        "SELECT object AS object_number, start, ranges::text, has_start, has_end, records, rows, suppressed, checksum"
        " FROM ONLY {ranges} WHERE load = %s AND object = %s ORDER BY start",
        schema,
    )
    with translate_errors("reading what is committed of an object"):
        return connection.cursor(row_factory=kwargs_row(_make_range)).execute(query, [load_id, number]).fetchall()


def _make_range(*, ranges: str, **fields: Any) -> CommittedRange:
    return CommittedRange(ranges=_parse_ranges(ranges), **fields)


def move_end(connection: Connection, schema: str, claim: Claim, number: int, *, end: int | None) -> None:
    """Record whether the last record of an object is committed, now that the object may have grown.

    `end` is where the last record ends, None if it is not committed yet. The unit is that of the object's ranges:
    decompressed bytes, or rows of a columnar file. A row of the end by itself is removed. Raises ServerError.
    """
    query = compose_query(
        "UPDATE ONLY {ranges} SET has_end = coalesce(pg_catalog.upper(ranges) = %s, false)"
        " WHERE load = %s AND object = %s",
        schema,
    )
    # The row of an end by itself, behind all records, is written again if need be.
    remove = compose_query(
        "DELETE FROM ONLY {ranges} WHERE load = %s AND object = %s AND ranges = '{{}}' AND has_end AND NOT has_start",
        schema,
    )
    with translate_errors("recording where an object ends"):
        connection.execute(remove, [claim.load_id, number])
        connection.execute(query, [end, claim.load_id, number])


def count_rows(connection: Connection, schema: str, load_id: str) -> int | None:
    """Return how many rows of a load are committed, None if the ledger does not have the load. Raises ServerError."""
    query = compose_query(
        "SELECT (SELECT coalesce(pg_catalog.sum(r.rows), 0) FROM ONLY {ranges} AS r WHERE r.load = l.id)"
        " FROM ONLY {loads} AS l WHERE l.id = %s",
        schema,
    )
    with translate_errors("counting what is committed"):
        row = connection.execute(query, [load_id]).fetchone()
    return None if row is None else int(row[0])


def insert_ranges(
    schema: str, claim: Claim, ranges: Sequence[CommittedRange], *, is_under_savepoints: bool = False
) -> sql.Composed:
    """Return a statement by which a transaction records the ranges of objects that it commits.

    With `is_under_savepoints`, the rows have transactions of their own, so that none is recorded.

    The statement locks the objects' rows, as a foreign key would: a session that removes an object waits for this
    transaction, and then sees the ranges. If an object is no longer part of the load, the statement fails
    (`lacks_object`).
    """
    return compose_query(
        "INSERT INTO {ranges} (load, object, start, ranges, has_start, has_end, records, rows, suppressed, checksum,"
        " rejected, form, member, transaction) SELECT {load}::uuid,"
        " (SELECT o.number FROM ONLY {objects} AS o WHERE o.load = {load}::uuid AND o.number = v.object"
        " FOR KEY SHARE OF o),"
        " v.start, v.ranges::int8multirange, v.has_start, v.has_end, v.records, v.rows, v.suppressed, v.checksum,"
        " v.rejected, v.form::jsonb, {member}, {transaction} FROM (VALUES {rows})"
        " AS v (object, start, ranges, has_start, has_end, records, rows, suppressed, checksum, rejected, form)",
        schema,
        load=sql.Literal(claim.load_id),
        member=sql.Literal(claim.member),
        transaction=sql.SQL("NULL::xid8" if is_under_savepoints else "pg_catalog.pg_current_xact_id()"),
        rows=sql.SQL(", ".join(map(_range_values, ranges))),
    )


def lacks_object(report: ServerReport, schema: str) -> bool:
    """Return whether an error of the server means that the ledger no longer has an object of the load.

    A transaction that records committed ranges of such an object fails, because the object's number is null.
    """
    found = (report.sqlstate, report.schema, report.table, report.column)
    return found == (NOT_NULL_VIOLATION, schema, "ranges", "object")


def insert_object(schema: str, claim: Claim, number: int, *, rows: int) -> sql.Composed:
    """Return statements by which a transaction records that it commits a whole object, which the server imports.

    `rows` is the number of rows that were imported.
    """
    whole = CommittedRange(
        object_number=number,
        start=0,
        ranges=((0, 1),),
        has_start=True,
        has_end=True,
        records=rows,
        rows=rows,
        suppressed=0,
        checksum=UNKNOWN_CHECKSUM,
    )
    unit = sql.SQL("UPDATE ONLY {} SET unit = 'object' WHERE load = {}::uuid AND number = {}").format(
        sql.Identifier(schema, "objects"), sql.Literal(claim.load_id), sql.Literal(number)
    )
    return sql.SQL("{}; {}").format(insert_ranges(schema, claim, [whole]), unit)


def _range_values(row: CommittedRange) -> str:
    """Return one row of a VALUES list.

    The text is composed here, because psycopg would take too long to format the thousands of rows that a batch may
    have.
    """
    form = "NULL" if row.form is None else sql.Literal(row.form).as_string(None)
    return (
        f"({row.object_number:d},{row.start:d},'{_format_ranges(row.ranges)}',{bool(row.has_start)},"
        f"{bool(row.has_end)},{row.records:d},{row.rows:d},{row.suppressed:d},{row.checksum:d},{row.rejected:d},{form})"
    )


def _format_ranges(ranges: Sequence[Range]) -> str:
    return "{" + ",".join(f"[{start:d},{end:d})" for start, end in ranges) + "}"


def _parse_ranges(text: str | None) -> tuple[Range, ...]:
    """Return the ranges in the text of a multirange, as PostgreSQL writes it.

    >>> _parse_ranges("{[0,10),[20,30)}")
    ((0, 10), (20, 30))
    """
    return tuple((int(start), int(end)) for start, end in _RANGE.findall(text or ""))
