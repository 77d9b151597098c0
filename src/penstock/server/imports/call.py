"""The statement that has the server import one object from S3, and the text that it returns.

Source: docs.aws.amazon.com/AmazonRDS/latest/UserGuide/USER_PostgreSQL.S3Import.Reference.html
"""

from __future__ import annotations

import re
from typing import NamedTuple

from psycopg import sql

from penstock.errors import ServerError
from penstock.model.source.block import CopySpec
from penstock.server.copy.copy import compose_table, copy_options
from penstock.server.sql.queries import list_identifiers

_RESULT = re.compile(r'(\d+) rows? imported into relation "(.*)" from file (.*) of (\d+) bytes\.?', re.DOTALL)

_SHOWN = 200


class S3Place(NamedTuple):
    """The place of an object in S3."""

    bucket: str
    key: str
    region: str


def compose_import(spec: CopySpec, place: S3Place, *, has_header: bool) -> sql.Composed:
    """Return the call. The function puts table, columns and options unchanged into its own COPY command."""
    options = copy_options(spec) + ([sql.SQL("HEADER true")] if has_header else [])
    texts = (
        compose_table(spec).as_string(None),
        list_identifiers(spec.columns).as_string(None),
        sql.SQL("({})").format(sql.SQL(", ").join(options)).as_string(None),
        *place,
    )
    arguments = sql.SQL(", ").join(sql.SQL("{}::pg_catalog.text").format(sql.Literal(text)) for text in texts)
    return sql.SQL("SELECT aws_s3.table_import_from_s3({})").format(arguments)


def read_result(text: str | None) -> int:
    """Return the number of rows that an import has reported. Raises ServerError if the text has none.

    >>> read_result('3 rows imported into relation "t" from file a/b.csv of 27 bytes')
    3
    """
    found = _RESULT.fullmatch((text or "").strip())
    if found is None:
        raise ServerError(
            "the import did not report how many rows it has stored",
            detail=f"The server returned: {(text or 'null')[:_SHOWN]}",
            hint="The object was rolled back. Load it with --via client, and report this with the server's version.",
        )
    return int(found[1])
