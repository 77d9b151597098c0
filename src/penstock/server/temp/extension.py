"""The extension pg_stat_statements, which any schema may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.server.connect.connection import Connection


def find_statements_schema(connection: Connection) -> str | None:
    """Return the schema of pg_stat_statements, None where this database does not have it. Raises psycopg.Error."""
    row = connection.execute(
        "SELECT n.nspname FROM pg_catalog.pg_extension AS e JOIN pg_catalog.pg_namespace AS n"
        " ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'"
    ).fetchone()
    return None if row is None else str(row[0])
