"""What the types of a table's columns have against values, asked of the server without storing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.model.jsontext import to_json
from penstock.server.queries import fetch_rows

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


def find_input_errors(
    session: CopySession, spec: CopySpec, values: Sequence[tuple[int, str, str]]
) -> list[InputErrorRow]:
    """Return what is wrong with values, given as (record, column, text); nothing where a type cannot be asked.

    Raises CopyFailed. PostgreSQL 16+.
    """
    if not values:
        return []
    table = sql.Identifier(spec.schema, spec.table) if spec.schema else sql.Identifier(spec.table)
    described = to_json([{"r": record, "c": column, "t": text} for record, column, text in values])
    with session.between_copies() as connection:
        try:
            # A savepoint of its own: a type that only knows how to fail takes the transaction along.
            with connection.transaction():
                return fetch_rows(
                    connection,
                    "input_errors",
                    InputErrorRow,
                    table=table.as_string(connection),
                    values=described,
                )
        except psycopg.DataError:
            return []
