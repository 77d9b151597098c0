"""What a merge was stopped by, in the words of the files: which records, of which objects."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.errors import DataError, PenstockError
from penstock.model.landing import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.server.errors import read_report, to_penstock_error, translate_errors
from penstock.server.merge_key import equals_previous, key_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.model.table import TableName
    from penstock.server.connection import Connection
    from penstock.server.errors import ServerReport
    from penstock.server.merge_key import Key

_COMMA = sql.SQL(", ")

# As much of a key's value as an error shows.
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlace:
    """Where a record stood: its object's number, its block's offset in bytes, and its number in the block, from 1."""

    object_number: int
    block_start: int
    record: int


class DuplicateKey(DataError):
    """Two records of the files have the same key."""

    def __init__(
        self, message: str, *, detail: str | None = None, hint: str | None = None, places: tuple[RecordPlace, ...] = ()
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.places = places


def name_by_number(number: int) -> str:
    """Return how errors speak of an object of which only the number is known."""
    return f"object {number}"


def refuse_duplicates(
    connection: Connection, staging: TableName, key: Key, *, name_object: Callable[[int], str]
) -> None:
    """Raise DuplicateKey for the first record, in file order, that has the key of an earlier one."""
    with translate_errors(f"looking for duplicate keys in {staging}"):
        row = connection.execute(_compose_duplicates(staging, key)).fetchone()
        if row is None:
            return
        values, *positions = row
        places = (_find_place(connection, staging, *positions[3:]), _find_place(connection, staging, *positions[:3]))
    shown = ", ".join("null" if value is None else _shorten(value) for value in values)
    first, second = (_describe(place, name_object) for place in places)
    raise DuplicateKey(
        f"key ({', '.join(key.names)})=({shown}) is duplicated in the files",
        detail=f"First in {first}, then in {second}.",
        hint="Correct the files, or say with --keep first or --keep last which record counts.",
        places=places,
    )


@contextmanager
def explain_merge(
    connection: Connection,
    staging: TableName,
    columns: Sequence[str],
    *,
    what: str,
    name_object: Callable[[int], str],
    has_key: bool = True,
) -> Iterator[None]:
    """Put what the staging table tells to a server's error in the block, which runs in a savepoint."""
    try:
        with connection.transaction():
            yield
    except psycopg.Error as error:
        explained = to_penstock_error(error, what)
        # After a lost connection there is nobody to ask.
        if not connection.closed:
            with translate_errors(what):
                _add_what_is_known(
                    explained,
                    connection,
                    staging,
                    columns,
                    read_report(error),
                    has_key=has_key,
                    name_object=name_object,
                )
        raise explained from error


def _add_what_is_known(
    error: PenstockError,
    connection: Connection,
    staging: TableName,
    columns: Sequence[str],
    report: ServerReport,
    *,
    has_key: bool,
    name_object: Callable[[int], str],
) -> None:
    if report.sqlstate == "23502" and report.column is not None:
        _explain_null(error, connection, staging, columns, report.column, name_object=name_object)
    elif report.sqlstate == "23505" and has_key:
        error.hint = (
            f'A row stands against another unique index than the key\'s, "{report.constraint}": correct the record in'
            " the file, or the row in the table."
        )


def _explain_null(
    error: PenstockError,
    connection: Connection,
    staging: TableName,
    columns: Sequence[str],
    column: str,
    *,
    name_object: Callable[[int], str],
) -> None:
    if column not in columns:
        error.hint = (
            f'INSERT asks for column "{column}" before it looks for a row with the key: give the column a value with'
            " --set, or a default."
        )
        return
    query = sql.SQL("SELECT {} FROM {} WHERE {} IS NULL ORDER BY {} LIMIT 1").format(
        _positions(), _identifier(staging), sql.Identifier(column), _positions()
    )
    row = connection.execute(query).fetchone()
    if row is not None:
        place = _describe(_find_place(connection, staging, *row), name_object)
        error.detail = f'The first record without a value for "{column}" is {place}.\n{error.detail}'


def _compose_duplicates(staging: TableName, key: Key) -> sql.Composed:
    """Return the query for the first record that has an earlier one's key: values, its position, the earlier one's."""
    values = _COMMA.join(sql.SQL("{}::pg_catalog.text").format(sql.Identifier(name)) for name in key.names)
    previous = _COMMA.join(
        sql.SQL("pg_catalog.lag({}) OVER w AS {}").format(sql.Identifier(name), sql.Identifier(f"previous_{number}"))
        for number, name in enumerate(POSITION_COLUMNS)
    )
    order = [*key_order(key), *map(sql.Identifier, POSITION_COLUMNS)]
    return sql.SQL(
        "SELECT s.penstock_values, {positions}, s.previous_0, s.previous_1, s.previous_2"
        " FROM (SELECT ARRAY[{values}] AS penstock_values, {positions}, {previous}, {is_duplicate} AS is_duplicate"
        " FROM {staging} WINDOW w AS (ORDER BY {order})) AS s"
        " WHERE s.is_duplicate ORDER BY {positions} LIMIT 1"
    ).format(
        values=values,
        positions=_positions(),
        previous=previous,
        is_duplicate=equals_previous(key),
        staging=_identifier(staging),
        order=_COMMA.join(order),
    )


def _find_place(
    connection: Connection, staging: TableName, object_number: int, block_start: int, sequence: int
) -> RecordPlace:
    query = sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {} = %s AND {} = %s AND {} <= %s").format(
        _identifier(staging), *map(sql.Identifier, (OBJECT_COLUMN, BLOCK_COLUMN, SEQUENCE_COLUMN))
    )
    row = connection.execute(query, [object_number, block_start, sequence]).fetchone()
    assert row is not None
    return RecordPlace(object_number=object_number, block_start=block_start, record=int(row[0]))


def _describe(place: RecordPlace, name_object: Callable[[int], str]) -> str:
    return f"{name_object(place.object_number)}, record {place.record} from byte {place.block_start} on"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _positions() -> sql.Composed:
    return _COMMA.join(map(sql.Identifier, POSITION_COLUMNS))


def _identifier(name: TableName) -> sql.Identifier:
    assert name.schema is not None
    return sql.Identifier(name.schema, name.name)
