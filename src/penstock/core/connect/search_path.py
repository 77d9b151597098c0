"""The search_path and IntervalStyle of a statement: penstock's own, or the user's.

A role that may create objects in a schema of the user's path can create an operator or function there that matches a
call better than PostgreSQL's own. That function then runs with the rights of the role that calls it. So a session's
path is pg_catalog and pg_temp (connection.py), as in pg_dump. The user's path, which is the session's default, is used
for statements that run code of the table's owner and of the user (COPY, INSERT, MERGE, DELETE, TRUNCATE, a transform;
deferred triggers at COMMIT), and to resolve names that a user gives. In those statements, the parts that penstock
writes call only functions and operators with a qualified name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from psycopg import sql

from penstock.core.connect.errors import in_transaction
from penstock.core.values.table import TableName

if TYPE_CHECKING:
    import psycopg

    # The same as connection.Connection. connection.py imports this module, so this module cannot import connection.py.
    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# pg_temp must be listed last, because otherwise it is searched first.
OWN_PATH: Final = "pg_catalog, pg_temp"

# Statements that set search_path and IntervalStyle until the transaction ends. DEFAULT is the user's value, from role,
# database and connection string.
TO_OWN_SETTINGS: Final = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL IntervalStyle = postgres"
TO_USERS_SETTINGS: Final = "SET LOCAL search_path TO DEFAULT; SET LOCAL IntervalStyle TO DEFAULT"
# How many results each of the two constants above gives: one for each statement in it.
SETTINGS_RESULTS: Final = 2

# The values of {to_own} and {to_users} in statement templates that switch between penstock's settings and the user's.
SETTINGS: Final = {"to_own": sql.SQL(TO_OWN_SETTINGS), "to_users": sql.SQL(TO_USERS_SETTINGS)}


@contextmanager
def users_settings(connection: Connection) -> Iterator[None]:
    """Run the block with the user's search_path and IntervalStyle, in the caller's transaction if it has one."""
    with in_transaction(connection):
        connection.execute(TO_USERS_SETTINGS)
        yield
        # Without this, the user's settings would last until the caller's transaction ends. After an error, the rollback
        # of the block restores them.
        connection.execute(TO_OWN_SETTINGS)


def find_schemas(connection: Connection, names: Sequence[TableName]) -> list[str | None]:
    """Return the schema of each name, or None if no schema in the user's search_path has such a relation.

    If the name contains a schema, that schema is returned. Otherwise the first schema in the search_path that has the
    relation is returned. Temporary schemas are ignored, because temporary tables usually belong to another session.
    """
    if all(name.schema is not None for name in names):
        return [name.schema for name in names]
    with users_settings(connection):
        row = connection.execute("SELECT pg_catalog.current_schemas(true)::pg_catalog.text[]").fetchone()
    assert row is not None
    schemas = [schema for schema in row[0] if not schema.startswith("pg_temp")]
    return [name.schema or _find_schema(connection, name.name, schemas) for name in names]


def _find_schema(connection: Connection, name: str, schemas: Sequence[str]) -> str | None:
    found = connection.execute(
        "SELECT s.name"
        "  FROM pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS s (name, number)"
        "  JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name"
        "  JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = %s"
        " ORDER BY s.number LIMIT 1",
        [list(schemas), name],
    ).fetchone()
    return None if found is None else str(found[0])


def find_creation_schema(connection: Connection) -> str | None:
    """Return the schema in which CREATE TABLE creates a table with the user's search_path, or None if there is none."""
    with users_settings(connection):
        row = connection.execute("SELECT pg_catalog.current_schema()::pg_catalog.text").fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])
