"""Whose search_path a statement runs with: penstock's own, or the user's.

Whoever may create in a schema of the user's path can plant an operator or a function there that fits a call better than
PostgreSQL's own, and have it run with the rights of whoever calls it. A session's path is therefore pg_catalog and
pg_temp (connection.py), as pg_dump's is. The user's path, which is the session's default, is for the statements that
run code of the table's owner and of the user (COPY, INSERT, MERGE, TRUNCATE, a transform; deferred triggers at COMMIT),
and to resolve the names that a user gives. Those statements call nothing of ours by a name that is not qualified.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from psycopg import sql

from penstock.server.connect.errors import in_transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from penstock.model.server.table import TableName

    # As connection.Connection, whose module imports this one.
    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

# pg_temp last, or else it would come first.
OWN_PATH: Final = "pg_catalog, pg_temp"

# Both for the rest of a transaction. DEFAULT is what role, database and connection string ask for.
TO_OWN_PATH: Final = "SET LOCAL search_path = pg_catalog, pg_temp"
TO_USERS_PATH: Final = "SET LOCAL search_path TO DEFAULT"

# For templates of statements that change from one to the other.
PATHS: Final = {"to_own": sql.SQL(TO_OWN_PATH), "to_users": sql.SQL(TO_USERS_PATH)}


@contextmanager
def users_path(connection: Connection) -> Iterator[None]:
    """Run the block with the user's path, in a transaction of its own or as a part of the caller's."""
    with in_transaction(connection):
        connection.execute(TO_USERS_PATH)
        yield
        # SET LOCAL would last until the caller's transaction ends; an error undoes it with the block.
        connection.execute(TO_OWN_PATH)


def find_schemas(connection: Connection, names: Sequence[TableName]) -> list[str | None]:
    """Return in which schema each name is: its own, or the first of the user's path that has such a relation.

    None where none has. Temporary tables, which are another session's as a rule, hide nothing.
    """
    if all(name.schema is not None for name in names):
        return [name.schema for name in names]
    with users_path(connection):
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
    """Return the schema in which the user's path makes a table, None where it makes none."""
    with users_path(connection):
        row = connection.execute("SELECT pg_catalog.current_schema()::pg_catalog.text").fetchone()
    assert row is not None
    return None if row[0] is None else str(row[0])
