"""Tables that a benchmark creates, marks as its own by a comment, and drops. Other tables are never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import TargetError
from penstock.model.server.table import TableName
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.copy.copy import copy_statement
from penstock.server.table.tables import create_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.model.source.block import CopySpec
    from penstock.server.connect.connection import Connection


def make_staging(connection: Connection, schema: str, tables: Mapping[str, Sequence[str]], *, mark: str) -> None:
    """Create empty, unindexed text tables (name to columns), in place of those of an earlier run.

    `mark` is the comment that identifies them. Needs CREATE on the schema, or on the database if the schema does not
    exist. Raises TargetError if one of the names belongs to another relation, or an object depends on one of the
    tables.
    """
    with in_transaction(connection, f"creating the tables of schema {schema}"):
        _drop_marked(connection, schema, list(tables), mark=mark)
        for name, columns in tables.items():
            create_table(connection, TableName(schema=schema, name=name), columns)
            comment = sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(schema, name), sql.Literal(mark))
            connection.execute(comment)


def count_rows(connection: Connection, schema: str, tables: Sequence[str]) -> dict[str, int]:
    """Return the number of rows of each table. Needs SELECT on them. Raises ServerError."""
    counts = {}
    with translate_errors(f"counting the rows of schema {schema}"):
        for name in tables:
            query = sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(sql.Identifier(schema, name))
            row = connection.execute(query).fetchone()
            assert row is not None
            counts[name] = int(row[0])
    return counts


def checkpoint(connection: Connection) -> None:
    """Write all dirty pages, so that the next measurement does not include earlier writes.

    Needs superuser, or pg_checkpoint on PostgreSQL 15 and later. Raises ServerError.
    """
    with translate_errors("writing a checkpoint"):
        connection.execute("CHECKPOINT")


def read_wal_to_replay(connection: Connection) -> int:
    """Return how many bytes of WAL the server would replay after a crash. Needs superuser. Raises ServerError."""
    with translate_errors("reading the last checkpoint"):
        row = connection.execute(
            "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), redo_lsn)"
            " FROM pg_catalog.pg_control_checkpoint()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def describe_copy(spec: CopySpec) -> str:
    """Return the text of a COPY FROM STDIN command for psql, for files with a header."""
    return f"{copy_statement(spec).as_string(None).removesuffix(')')}, HEADER)"


def _drop_marked(connection: Connection, schema: str, names: Sequence[str], *, mark: str) -> None:
    found = connection.execute(
        "SELECT c.relname, pg_catalog.obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class AS c"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = ANY (%s) ORDER BY c.relname",
        [schema, list(names)],
    ).fetchall()
    if foreign := [name for name, comment in found if comment != mark]:
        raise TargetError(
            f'relation "{schema}.{foreign[0]}" already exists and was not created by penstock',
            detail=f"{len(foreign)} of the {len(names)} names in schema {schema} are taken: {', '.join(foreign)}.",
            hint="Name another schema with --schema, or rename or drop what is there.",
        )
    for name, _ in found:
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(schema, name)))
