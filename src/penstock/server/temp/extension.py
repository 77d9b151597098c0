"""Finds the extension pg_stat_statements, which may be in any schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from penstock.server.connect.connection import Connection

if TYPE_CHECKING:
    from typing import LiteralString


# A replay runs a statement with this. EXPLAIN returns a few kilobytes, and the rows are not sent to the client.
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "

# A condition on pg_stat_statements AS s. It excludes the statements of a replay and of a placement's proof, which spill
# too.
_NOT_OURS = sql.SQL(
    "(pg_catalog.starts_with(s.query, {}) OR pg_catalog.strpos(s.query, 'penstock_proof') > 0) IS NOT TRUE"
).format(EXPLAIN)


def find_statements_schema(connection: Connection) -> str | None:
    """Return the schema of pg_stat_statements, or None if this database lacks it. Raises psycopg.Error."""
    row = connection.execute(
        "SELECT n.nspname FROM pg_catalog.pg_extension AS e JOIN pg_catalog.pg_namespace AS n"
        " ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'"
    ).fetchone()
    return None if row is None else str(row[0])


def compose(query: LiteralString, *, schema: str) -> sql.Composed:
    """Return a query with its {schema} and {not_ours} replaced."""
    return sql.SQL(query).format(schema=sql.Identifier(schema), not_ours=_NOT_OURS)
