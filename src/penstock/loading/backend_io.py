"""Reads the server's counters of the I/O and the WAL of sessions."""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from penstock.core.connect.connection import Connection
from penstock.core.sql import fetch_rows
from penstock.core.values.accounts import BackendIo


def read_backend_io(connection: Connection, pids: Iterable[int]) -> BackendIo | None:
    """Return the I/O and the WAL that backends have counted since they started, None if the counters cannot be read.

    Before PostgreSQL 18, the counters are not those of `pids`: they are the WAL of the whole server and, from
    PostgreSQL 16 on, the I/O of all client backends. A backend reports its counters at a commit only if
    CopySession.commit requests that. If the connection is lost, None is returned, because the next statement raises the
    error.
    """
    try:
        (found,) = fetch_rows(connection, "loading/backend_io", BackendIo, pids=sorted(pids))
    except psycopg.Error:
        return None
    return found
