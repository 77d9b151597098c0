"""Reads the server's counters of the I/O and the WAL of sessions."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from penstock.core.connect.connection import Connection
from penstock.core.sql import fetch_rows
from penstock.core.values.accounts import BackendIo


def read_backend_io(connection: Connection, pids: Iterable[int]) -> BackendIo | None:
    """Return what backends have read and written since they started, None if that cannot be read.

    Before PostgreSQL 18, the result is what all clients have read and written. A backend reports its counters at a
    commit only if CopySession.commit requests that. If the connection is lost, no error is raised here, because the
    next statement raises it.
    """
    try:
        (found,) = fetch_rows(connection, "loading/backend_io", BackendIo, pids=sorted(pids))
    except psycopg.Error:
        return None
    return found
