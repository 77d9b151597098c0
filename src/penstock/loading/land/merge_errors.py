"""Adds to the errors of a merge the records of the files that caused them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.core.catalogue.staging import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import NOT_NULL_VIOLATION, to_penstock_error, translate_errors
from penstock.core.errors import DataError, FileLocation, PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, list_identifiers, table_identifier
from penstock.core.values.table import TableName
from penstock.loading.land.merge_key import Key, equals_previous, key_order
from penstock.loading.rejects.sorting import BYTES_ENCODING

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from penstock.loading.land.merge import MergeParts

# The SQLSTATE of a missing privilege, and of a row that a row-level security policy refuses.
_INSUFFICIENT_PRIVILEGE = "42501"
# The function of the server that raises 42501 if a policy refused the row.
_POLICY_FUNCTION = "ExecWithCheckOptions"


@slotted
class RecordPosition:
    """The position of a staged record in the files."""

    # The number of the record's object in the load.
    object_number: int
    # The offset of the record's block in the decompressed object, in bytes, or in rows if its ranges count rows.
    block_start: int
    # The record's number among the staged records of the block, from 1.
    record: int


# Returns a name for the record at a position: its place in a file, or a text if this host does not have the file.
NameRecord = Callable[[RecordPosition], FileLocation | str]


def is_policy_violation(diagnostic: Diagnostic) -> bool:
    """Return whether a row-level security policy refused a row. A missing privilege has the same SQLSTATE."""
    return diagnostic.sqlstate == _INSUFFICIENT_PRIVILEGE and diagnostic.source_function == _POLICY_FUNCTION


def find_position(
    connection: Connection, staging: TableName, object_number: int, block_start: int, sequence: int
) -> RecordPosition:
    """Return the position in the files of a record in the staging table.

    The last three arguments are the record's values in the columns POSITION_COLUMNS. The record's number in its block
    is counted in the staging table. Raises psycopg.Error.
    """
    query = sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {} = %s AND {} = %s AND {} <= %s").format(
        table_identifier(staging), *map(sql.Identifier, (OBJECT_COLUMN, BLOCK_COLUMN, SEQUENCE_COLUMN))
    )
    (record,) = fetch_one(connection, query, [object_number, block_start, sequence])
    return RecordPosition(object_number=object_number, block_start=block_start, record=record)


_COMMA = sql.SQL(", ")

_UNIQUE_VIOLATION = "23505"

# How many characters of a key's value an error shows.
_SHOWN_CHARACTERS = 100


def name_by_number(position: RecordPosition) -> str:
    """Return a description such as `object 3, record 7 from byte 0 on`, for a record whose line is not known."""
    return f"object {position.object_number}, record {position.record} from byte {position.block_start} on"


def refuse_duplicates(connection: Connection, parts: MergeParts, *, name_record: NameRecord) -> None:
    """Raise DataError if two records have the same key, unless --keep chooses one of them or no row is updated.

    The error names two records by `name_record`: the first one, in file order, whose key an earlier record has, and the
    earlier record. Raises ServerError.
    """
    staging, key = parts.staging, parts.key
    if key is None or not parts.refuses_duplicates:
        return
    with translate_errors(f"looking for duplicate keys in {staging}"):
        row = connection.execute(_compose_duplicates(staging, key)).fetchone()
        if row is None:
            return
        values, *positions = row
        found = (find_position(connection, staging, *positions[3:]), find_position(connection, staging, *positions[:3]))
    shown = ", ".join(
        "null" if value is None else _shorten(value) for value in json.loads(values.decode(errors="replace"))
    )
    first, second = map(name_record, found)
    error = DataError(
        f"key ({', '.join(key.names)})=({shown}) is duplicated in the files",
        detail=f"First in {first}, then in {second}.",
        hint="Correct the files, or use --keep first or --keep last to choose a record.",
    )
    error.location = second if isinstance(second, FileLocation) else None
    raise error


def explain_merge(
    error: psycopg.Error,
    parts: MergeParts,
    *,
    name_record: NameRecord,
    find_refused: Callable[[str], RecordPosition | None],
) -> PenstockError:
    """Return the error to raise for a merge that has failed, with a hint and a record that causes the error.

    `find_refused` is called with the SQLSTATE and returns the position of a record that the table refuses with it, or
    None if it finds none. `name_record` describes that record.
    """
    explained = to_penstock_error(error, f"{'merging' if parts.key else 'inserting'} into {parts.target.name}")
    explained.hint = _choose_hint(error.diag, parts) or explained.hint
    is_records = isinstance(explained, DataError) or is_policy_violation(error.diag)
    if is_records and error.sqlstate is not None and (position := find_refused(error.sqlstate)) is not None:
        named = name_record(position)
        explained.detail = f"One such record: {named}.\n{explained.detail}"
        explained.location = named if isinstance(named, FileLocation) else None
    return explained


def _choose_hint(diagnostic: Diagnostic, parts: MergeParts) -> str | None:
    """Return the hint for errors that only a merge raises, or that mean something else in a merge.

    If the server sent a hint, such as a trigger's, that hint is kept.
    """
    if diagnostic.message_hint:
        return None
    if is_policy_violation(diagnostic):
        return "Correct the record in the file, or have the table's owner change the policy: see pg_policies."
    if diagnostic.sqlstate == NOT_NULL_VIOLATION and diagnostic.column_name not in parts.columns:
        return (
            f'INSERT asks for column "{diagnostic.column_name}" before it looks for a row with the key: give the'
            " column a value with --set, or a default."
        )
    if diagnostic.sqlstate == _UNIQUE_VIOLATION and parts.key:
        return (
            f'A row conflicts in a unique index other than the key\'s, "{diagnostic.constraint_name}": correct the'
            " record in the file, or the row in the table."
        )
    return None


def _compose_duplicates(staging: TableName, key: Key) -> sql.Composed:
    """Return the query for the first record that has the same key as an earlier record.

    It returns the record's key values, as bytes of JSON, its position, and the position of the earlier record.
    """
    values = _COMMA.join(sql.SQL("{}::pg_catalog.text").format(sql.Identifier(name)) for name in key.names)
    previous = _COMMA.join(
        sql.SQL("pg_catalog.lag({}) OVER w AS {}").format(sql.Identifier(name), sql.Identifier(f"previous_{number}"))
        for number, name in enumerate(POSITION_COLUMNS)
    )
    order = [*key_order(key), *map(sql.Identifier, POSITION_COLUMNS)]
    return sql.SQL(
        "SELECT pg_catalog.convert_to(pg_catalog.to_json(s.penstock_values)::pg_catalog.text, {encoding}), {positions},"
        " s.previous_0, s.previous_1, s.previous_2"
        " FROM (SELECT ARRAY[{values}] AS penstock_values, {positions}, {previous}, {is_duplicate} AS is_duplicate"
        " FROM {staging} WINDOW w AS (ORDER BY {order})) AS s"
        " WHERE s.is_duplicate ORDER BY {positions} LIMIT 1"
    ).format(
        values=values,
        encoding=sql.SQL(BYTES_ENCODING),
        positions=list_identifiers(POSITION_COLUMNS),
        previous=previous,
        is_duplicate=equals_previous(key),
        staging=table_identifier(staging),
        order=_COMMA.join(order),
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
