"""Temporary tables like the targets, to check what a load would do without loading."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from psycopg import sql

from penstock.errors import TargetError
from penstock.model.server.table import TableFacts, TableName
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import hint_missing_right, translate_errors
from penstock.server.sql.queries import table_identifier

_CHECKS_OF_COLUMNS = """
    SELECT c.conname
    FROM pg_catalog.pg_constraint c
    WHERE c.conrelid = pg_catalog.to_regclass(%(table)s)
      AND c.contype = 'c'
      AND EXISTS (
          SELECT
          FROM pg_catalog.pg_attribute a
          WHERE a.attrelid = c.conrelid
            AND a.attnum = ANY (c.conkey)
            AND a.attname = ANY (%(columns)s)
      )
    ORDER BY c.conname
"""


class ScratchTables:
    """The temporary tables of one session. Each is created when it is first used. Every commit deletes their rows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._names: dict[tuple[TableName, frozenset[str]], str] = {}

    def name_for(self, facts: TableFacts, filled: Collection[str]) -> str:
        """Return the name, in pg_temp, of the table for a load that fills the columns `filled`.

        The table has the target's columns, and their NOT NULL and CHECK constraints, except constraints on columns that
        the server fills (made_up_columns). Defaults are left out too, because the default of a serial column would
        advance the target's sequence. If the target does not exist yet (OID 0), all columns are text. Needs TEMPORARY
        on the database and SELECT on the target. Raises TargetError, ServerError.
        """
        key = (facts.name, frozenset(filled))
        if key not in self._names:
            # The tables are numbered, because two schemas may have a table of the same name.
            name = f"penstock_check_{len(self._names) + 1}"
            try:
                with translate_errors(f"creating a temporary table like {facts.name}"):
                    _create(self._connection, name, facts)
                    _loosen(self._connection, name, made_up_columns(facts, filled))
            except TargetError as error:
                hint_missing_right(error, "Have the role granted SELECT on the table, and TEMPORARY on the database.")
                raise
            self._names[key] = name
        return self._names[key]


def made_up_columns(facts: TableFacts, filled: Collection[str]) -> tuple[str, ...]:
    """Return the columns that the server fills in a load that fills the columns `filled`.

    If there are any, all generated columns are included, because they may be computed from these columns.
    """
    unfilled = {
        column.name
        for column in facts.columns
        if column.name not in filled and not column.is_generated and (column.has_default or column.identity)
    }
    return tuple(
        column.name for column in facts.columns if column.name in unfilled or (unfilled and column.is_generated)
    )


def _create(connection: Connection, name: str, facts: TableFacts) -> None:
    if facts.oid:
        body = sql.SQL("LIKE {} INCLUDING CONSTRAINTS INCLUDING GENERATED").format(table_identifier(facts.name))
    else:
        body = sql.SQL(", ").join(
            sql.SQL("{} pg_catalog.text").format(sql.Identifier(column.name)) for column in facts.columns
        )
    table = sql.Identifier("pg_temp", name)
    connection.execute(sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DELETE ROWS").format(table, body))


def _loosen(connection: Connection, name: str, columns: Sequence[str]) -> None:
    """Drop the constraints on columns that are null in the temporary table but not in the target."""
    if not columns:
        return
    checks = connection.execute(_CHECKS_OF_COLUMNS, {"table": f"pg_temp.{name}", "columns": list(columns)}).fetchall()
    actions = [sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(sql.Identifier(column)) for column in columns]
    actions += [sql.SQL("DROP CONSTRAINT {}").format(sql.Identifier(check)) for (check,) in checks]
    connection.execute(
        sql.SQL("ALTER TABLE {} {}").format(sql.Identifier("pg_temp", name), sql.SQL(", ").join(actions))
    )
