"""Reads what an import from S3 needs, and the progress of imports, with an ordinary role's rights."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from psycopg import sql

from penstock.frozen import frozen
from penstock.model.load.route import ImportRights, Link
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

# This fills the window of a TCP connection to another region, and any link sends it within seconds.
_PROBE_BYTES = 2 * 1024 * 1024
_ROUND_TRIPS = 5


@frozen
class ImportRow:
    """The progress of one backend's import."""

    pid: int
    # The rows of its COPY command, None if the server does not show them.
    rows: int | None
    # The decompressed bytes of its COPY command, None if the server does not show them.
    bytes_read: int | None
    # Whether it waits for a lock.
    is_blocked: bool


def read_import_rights(connection: Connection) -> ImportRights:
    """Return whether the role may import from S3. Raises ServerError."""
    with translate_errors("looking for the extension aws_s3"):
        (row,) = fetch_rows(connection, "import_rights", ImportRights)
    return row


def read_imports(connection: Connection, pids: Sequence[int]) -> list[ImportRow]:
    """Return the progress of the imports of backends. Raises ServerError."""
    with translate_errors("reading the progress of imports"):
        return fetch_rows(connection, "import_progress", ImportRow, pids=list(pids))


def read_table_bytes(connection: Connection, oids: Sequence[int]) -> int:
    """Return the size of tables and their partitions. It grows before rows are committed. Raises ServerError."""
    query = """
        SELECT coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(each.oid)), 0)::int8
          FROM (
                   SELECT t.oid FROM pg_catalog.unnest(%(oids)s::oid[]) AS t (oid)
                   UNION
                   SELECT p.relid
                     FROM pg_catalog.unnest(%(oids)s::oid[]) AS t (oid), pg_catalog.pg_partition_tree(t.oid) AS p
               ) AS each
    """
    with translate_errors("reading the size of the tables"):
        row = connection.execute(query, {"oids": list(oids)}).fetchone()
    return 0 if row is None else int(row[0])


def measure_link(connection: Connection) -> Link:
    """Return the shortest of a few round trips, and how fast a text of 2 MiB is sent. Raises ServerError."""
    with translate_errors("measuring the link to the server"):
        round_trip_s = min(_time(connection, "") for _ in range(_ROUND_TRIPS))
        # The text is random, so that no tunnel can compress it.
        sent_s = _time(connection, secrets.token_hex(_PROBE_BYTES // 2))
    return Link(round_trip_s=round_trip_s, bytes_per_s=_PROBE_BYTES / max(sent_s - round_trip_s, 1e-6))


def _time(connection: Connection, text: str) -> float:
    began_s = time.perf_counter()
    connection.execute(sql.SQL("SELECT pg_catalog.length(%s::pg_catalog.text)"), [text]).fetchone()
    return time.perf_counter() - began_s
