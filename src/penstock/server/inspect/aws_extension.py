"""Reads the state of extension aws_s3, creates it, and drops it."""

from __future__ import annotations

from penstock.model.s3_import import ExtensionFacts
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows


def look_at_extension(connection: Connection) -> ExtensionFacts:
    """Return the state of aws_s3 in the session's database. Raises ServerError."""
    with translate_errors("looking for extension aws_s3"):
        (found,) = fetch_rows(connection, "aws_extension", ExtensionFacts)
    return found


def find_database(connection: Connection, oid: int) -> str | None:
    """Return the name of a database, or None if it was dropped. Raises ServerError."""
    with translate_errors("looking for a database"):
        query = "SELECT d.datname::text FROM pg_catalog.pg_database AS d WHERE d.oid = %s::bigint::oid"
        row = connection.execute(query, [oid]).fetchone()
    return None if row is None else str(row[0])


def run_extension_statement(connection: Connection, text: str) -> None:
    """Create or drop the extension. Needs rds_superuser; to drop it, ownership. Raises ServerError, TargetError."""
    with translate_errors(f"running {text}"):
        connection.execute(text.encode())
