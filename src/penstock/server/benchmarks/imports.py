"""The published import from S3, as the article calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from penstock.server.connect.errors import translate_errors

if TYPE_CHECKING:
    from penstock.server.connect.connection import Connection
    from penstock.server.imports.call import S3Place

# In this format a backslash N is text, and quotes are not data. IMDb's files have both.
_OPTIONS = r"(FORMAT csv, HEADER true, DELIMITER E'\t')"


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
