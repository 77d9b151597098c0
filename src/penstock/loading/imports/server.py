"""Composes and runs the statement with which the server imports an object from S3; reads rights and progress.

Source: docs.aws.amazon.com/AmazonRDS/latest/UserGuide/USER_PostgreSQL.S3Import.Reference.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from psycopg import sql
from psycopg.pq import ExecStatus

from penstock.core.catalogue.tables import compose_look
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.connect.search_path import TO_USERS_SETTINGS
from penstock.core.errors import ServerError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, list_identifiers, run_query
from penstock.core.values.mode import ImportRights
from penstock.loading.copy.copy import CopySession, compose_table, copy_options
from penstock.loading.values.objects import CopySpec

_RESULT = re.compile(r'(\d+) rows? imported into relation "(.*)" from file (.*) of (\d+) bytes\.?', re.DOTALL)

_SHOWN = 200


class S3Object(NamedTuple):
    """An object in S3: its bucket, its key, and the AWS region of the bucket."""

    bucket: str
    key: str
    region: str


def compose_import(spec: CopySpec, place: S3Object, *, has_header: bool) -> sql.Composed:
    """Return the statement that calls aws_s3.table_import_from_s3 for an object.

    The function puts the table, the columns and the options of `spec` unchanged into its COPY command.
    """
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
    """Return the number of rows in the text that aws_s3.table_import_from_s3 has returned.

    Raises ServerError if the text has none.

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


@slotted
class ImportRow:
    """The progress of one backend's import."""

    pid: int
    # The rows that the import's COPY command has processed, None if the server does not show them.
    rows: int | None
    # The decompressed bytes that the import's COPY command has read, None if the server does not show them.
    bytes_read: int | None
    # Whether the backend waits for a lock.
    is_blocked: bool


def read_import_rights(connection: Connection) -> ImportRights:
    """Return whether this role may call aws_s3.table_import_from_s3, and what it lacks. Raises ServerError."""
    with translate_errors("looking for the extension aws_s3"):
        (row,) = fetch_rows(connection, "loading/import_rights", ImportRights)
    return row


def read_imports(connection: Connection, pids: Sequence[int]) -> list[ImportRow]:
    """Return the progress of the imports by the backends with these process ids. Raises ServerError."""
    with translate_errors("reading the progress of imports"):
        return fetch_rows(connection, "loading/import_progress", ImportRow, pids=list(pids))


def read_table_bytes(connection: Connection, oids: Sequence[int]) -> int:
    """Return the size in bytes of the tables with these oids and of their partitions.

    This size grows before rows are committed. Raises ServerError.
    """
    with translate_errors("reading the size of the tables"):
        row = run_query(connection, "loading/table_bytes", oids=list(oids)).fetchone()
    return 0 if row is None else int(row[0])


# Makes the server check every two seconds, during an import, whether its client is still connected. Otherwise the
# import of a killed client would continue, and would prevent the load from being resumed.
_LOOK_FOR_CLIENT = (
    "SELECT pg_catalog.set_config(name, '2s', false) FROM pg_catalog.pg_settings"
    " WHERE name = 'client_connection_check_interval'"
)


class ImportSession(CopySession):
    """A session in which the server reads the rows from S3 itself. `import_object` replaces COPY FROM STDIN."""

    _is_prepared = False

    def begin(self) -> None:
        """Open a transaction if none is open.

        Before the first transaction of the session, client_connection_check_interval is set, so that the server notices
        during an import that its client has gone.
        """
        if not self._is_prepared:
            self.execute(sql.SQL(_LOOK_FOR_CLIENT))
            self._is_prepared = True
        super().begin()

    def import_object(self, spec: CopySpec, place: S3Object, *, has_header: bool) -> str | None:
        """Import an object in the open transaction, and return the text that aws_s3.table_import_from_s3 returns.

        The call runs with the user's search_path, as COPY does. Raises CopyFailed. Raises TargetError if the table's
        name now belongs to a table other than the one in `tables`. Needs EXECUTE on the function, and INSERT on the
        table.
        """
        self._spec, table = spec, self._find_table(spec)
        parts = [sql.SQL(TO_USERS_SETTINGS), compose_import(spec, place, has_header=has_header)]
        parts += [] if table is None else [compose_look(table, spec.columns)]
        with self._failures():
            self._pgconn.send_query(sql.SQL("; ").join(parts).as_bytes(self._connection))
            self._flush()
            self._take_users_settings()
            result = self._take(ExecStatus.TUPLES_OK)
            self._take_look(table, spec)
        text = result.get_value(0, 0) if result.ntuples == 1 else None
        return None if text is None else text.decode("utf-8", "replace")
