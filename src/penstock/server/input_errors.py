"""What the types of a table's columns have against values, asked of the server without storing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import sql

from penstock.model.jsontext import to_json
from penstock.server.copy import compose_table
from penstock.server.landing import ColumnType
from penstock.server.queries import fetch_rows
from penstock.server.search_path import users_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.block import CopySpec
    from penstock.server.copy import CopySession


@dataclass(frozen=True, slots=True, kw_only=True)
class InputErrorRow:
    """The row of input_errors.pg16.sql; `record` is the number that the caller gave."""

    record: int
    column: str
    message: str
    detail: str | None
    sqlstate: str


class NullError(NamedTuple):
    """Why a type refuses a null."""

    message: str
    detail: str | None
    sqlstate: str


def find_input_errors(
    session: CopySession, spec: CopySpec, values: Sequence[tuple[int, str, str]]
) -> list[InputErrorRow]:
    """Return what is wrong with values, given as (record, column, text); nothing where a type cannot be asked.

    Raises CopyFailed. PostgreSQL 16+.
    """
    if not values:
        return []
    table = compose_table(spec)
    described = to_json([{"r": record, "c": column, "t": text} for record, column, text in values])
    with session.between_copies() as connection:
        try:
            # A savepoint of its own: a type that only knows how to fail takes the transaction along.
            with users_path(connection):
                return fetch_rows(
                    connection,
                    "input_errors",
                    InputErrorRow,
                    table=table.as_string(connection),
                    values=described,
                )
        except psycopg.DataError:
            return []


def find_null_error(session: CopySession, spec: CopySpec, column: str) -> NullError | None:
    """Return what a column's type has against a null, as only a domain may; None where it takes one.

    Raises CopyFailed.
    """
    table = compose_table(spec)
    with session.between_copies() as connection:
        row = connection.execute("SELECT %s::pg_catalog.regclass::oid", [table.as_string(connection)]).fetchone()
        assert row is not None
        types = {
            each.name: each.type_name for each in fetch_rows(connection, "landing_columns", ColumnType, oid=row[0])
        }
        try:
            with users_path(connection):
                connection.execute(sql.SQL("SELECT CAST(NULL AS {})").format(sql.SQL(types[column])))
        except psycopg.IntegrityError as error:
            diagnostic = error.diag
            return NullError(
                message=diagnostic.message_primary or "",
                detail=diagnostic.message_detail,
                sqlstate=diagnostic.sqlstate or "",
            )
    return None
