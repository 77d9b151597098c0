"""Tables that a benchmark creates, imports into and drops, in a schema or a database of its own (schema.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.model.server.table import TableName
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.copy.copy import copy_statement
from penstock.server.sql.queries import fetch_one
from penstock.server.table.tables import create_table

if TYPE_CHECKING:
    from penstock.model.source.block import CopySpec
    from penstock.server.imports.call import S3Place

# In this format a backslash N is text, and quotes are not data. IMDb's files have both.
_OPTIONS = r"(FORMAT csv, HEADER true, DELIMITER E'\t')"


def make_staging(connection: Connection, schema: str, tables: Mapping[str, Sequence[str]]) -> None:
    """Create empty, unindexed text tables (name to columns), in place of those of the last run.

    The schema or the database is the benchmark's own, so nothing else is replaced. Needs CREATE on the schema, or on
    the database if the schema does not exist. Raises ServerError.
    """
    with in_transaction(connection, f"creating the tables of schema {schema}"):
        for name, columns in tables.items():
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, name)))
            create_table(connection, TableName(schema=schema, name=name), columns)


def count_rows(connection: Connection, schema: str, tables: Sequence[str]) -> dict[str, int]:
    """Return the number of rows of each table. Needs SELECT on them. Raises ServerError."""
    counts = {}
    with translate_errors(f"counting the rows of schema {schema}"):
        for name in tables:
            query = sql.SQL("SELECT pg_catalog.count(*) FROM {}").format(sql.Identifier(schema, name))
            counts[name] = int(fetch_one(connection, query)[0])
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
        (wal_bytes,) = fetch_one(
            connection,
            "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), redo_lsn)"
            " FROM pg_catalog.pg_control_checkpoint()",
        )
    return int(wal_bytes)


def describe_copy(spec: CopySpec) -> str:
    """Return the text of a COPY FROM STDIN command for psql, for files with a header."""
    return f"{copy_statement(spec).as_string(None).removesuffix(')')}, HEADER)"


def create_import_functions(connection: Connection) -> None:
    """Create the extension aws_s3. Needs CREATE on the database and, in a lab, superuser. Raises ServerError."""
    with translate_errors("creating extension aws_s3"):
        connection.execute("CREATE EXTENSION IF NOT EXISTS aws_s3 CASCADE")


def import_as_published(connection: Connection, schema: str, table: str, place: S3Place) -> None:
    """Import an object into a table with the options of the article. Raises ServerError.

    Source: AWS Database Blog on bulk loading into Amazon RDS for PostgreSQL.
    """
    name = sql.Identifier(schema, table).as_string(connection)
    with translate_errors(f"importing into {schema}.{table}"):
        connection.execute(
            "SELECT aws_s3.table_import_from_s3(%s, '', %s, aws_commons.create_s3_uri(%s, %s, %s))",
            [name, _OPTIONS, *place],
        )
