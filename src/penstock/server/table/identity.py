"""Checks, under a lock, that names still belong to the table and columns with which a load began.

Commands use the names of tables and columns. A command that has waited for a lock uses the table that has the name at
that time. Another session may have swapped in or renamed that table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql

from penstock.errors import OtherTableError
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import table_identifier

if TYPE_CHECKING:
    import psycopg

    from penstock.model.server.table import Column, TableName

_RELATION = """
    SELECT pg_catalog.format('%%s.%%s', n.nspname, c.relname)
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = %s
"""


# This also runs with the user's search_path, so each operator is qualified.
_LOOK = """
    SELECT pg_catalog.to_regclass({table})::pg_catalog.oid,
           pg_catalog.string_agg(
               pg_catalog.concat_ws(' ', a.attnum, a.atttypid::pg_catalog.oid, a.atttypmod), ',' ORDER BY w.position
           )
      FROM pg_catalog.unnest({columns}::pg_catalog.name[]) WITH ORDINALITY AS w (name, position)
      LEFT JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass({table})::pg_catalog.oid
       AND a.attname OPERATOR(pg_catalog.=) w.name
"""


class LoadedTable(NamedTuple):
    """A table as it was at the start of the load."""

    # With its schema.
    name: TableName
    oid: int
    # Set only for tables that others can have altered. If empty, columns are not checked.
    columns: tuple[Column, ...] = ()


def compose_look(table: LoadedTable, columns: Sequence[str] = ()) -> sql.Composed:
    """Return the query for the table and columns that have the names now. `check_look` compares its result."""
    name = table_identifier(table.name).as_string(None)
    return sql.SQL(_LOOK).format(table=sql.Literal(name), columns=sql.Literal(list(columns)))


def send_check(
    connection: psycopg.Connection[Any], table: LoadedTable, columns: Sequence[str] = ()
) -> Callable[[], None]:
    """Send the check. In a pipeline this does not wait. The returned function raises TargetError, ServerError.

    The caller has written to the table in this transaction, so it holds a lock.
    """
    cursor = connection.execute(compose_look(table, columns))

    def check() -> None:
        with translate_errors(f"reading table {table.name}"):
            row = cursor.fetchone()
            assert row is not None
            check_look(connection, table, columns, *row)

    return check


def check_look(
    connection: psycopg.Connection[Any],
    table: LoadedTable,
    columns: Sequence[str],
    oid: int | None,
    found: str | None,
) -> None:
    """Raise TargetError if the result of `compose_look` differs from the start of the load. Raises psycopg.Error."""
    if oid != table.oid:
        raise _other_table(connection, table)
    if not table.columns:
        return
    known = {each.name: f"{each.number} {each.type_oid} {each.type_modifier}" for each in table.columns}
    now = dict(zip(columns, (found or "").split(","), strict=False))
    if changed := [name for name in columns if now.get(name) != known.get(name)]:
        raise OtherTableError(
            f'columns of table "{table.name}" are not those that this load began with',
            detail=f"Renamed or altered since: {', '.join(changed)}.",
            hint="Restore them, or start a new load into the table as it is now.",
        )


def _other_table(connection: psycopg.Connection[Any], table: LoadedTable) -> OtherTableError:
    """Return the error for a name that belongs to another table now. Raises psycopg.Error."""
    row = connection.execute(_RELATION, [table.oid]).fetchone()
    fate = "was dropped, or replaced by another load" if row is None else f'is now "{row[0]}"'
    return OtherTableError(
        f'table "{table.name}" is not the table that this load began with',
        detail=f"That table (oid {table.oid}) {fate}.",
        hint="Rename the tables back, or start a new load into the one that has the name now.",
    )
