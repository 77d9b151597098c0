"""Whether a table's name still means the table that a load began with, asked while a lock keeps it from being renamed.

Commands name tables, and one that waits for its lock takes what has the name then: what others have swapped in, or
given the name by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql

from penstock.errors import OtherTableError
from penstock.server.connect.errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from penstock.model.server.table import TableName

_RELATION = """
    SELECT pg_catalog.format('%%s.%%s', n.nspname, c.relname)
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = %s
"""


class LoadedTable(NamedTuple):
    """A table by its name, with its schema, and the oid that it had when the load began."""

    name: TableName
    oid: int


def compose_look(table: LoadedTable) -> sql.Composed:
    """Return the query for the oid that a table's name has now. Its answer is compared here, by no operator there."""
    name = sql.Identifier(table.name.schema or "public", table.name.name).as_string(None)
    return sql.SQL("SELECT pg_catalog.to_regclass({})::pg_catalog.oid").format(sql.Literal(name))


def send_check(connection: psycopg.Connection[Any], table: LoadedTable) -> Callable[[], None]:
    """Ask without waiting, if the connection is in a pipeline; what is returned raises TargetError, ServerError.

    The caller has written to the table in this transaction, and so holds a lock.
    """
    cursor = connection.execute(compose_look(table))

    def check() -> None:
        with translate_errors(f"reading table {table.name}"):
            if cursor.fetchone() != (table.oid,):
                raise other_table(connection, table)

    return check


def other_table(connection: psycopg.Connection[Any], table: LoadedTable) -> OtherTableError:
    """Return the error for a name that means another table now. Raises psycopg.Error."""
    row = connection.execute(_RELATION, [table.oid]).fetchone()
    fate = "was dropped, or replaced by another load" if row is None else f'is now "{row[0]}"'
    return OtherTableError(
        f'table "{table.name}" is not the table that this load began with',
        detail=f"That table (oid {table.oid}) {fate}.",
        hint="Rename the tables back, or start a new load into the one that has the name now.",
    )
