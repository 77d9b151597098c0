"""Readers to whom a new table would look empty: those whose snapshot is older than its rows.

The catalogue is always read as it is now, rows are read by the snapshot. So a REPEATABLE READ transaction that began
before the rows were committed, and first asks for the table after the swap, finds the new table and none of its rows:
what the documentation says of TRUNCATE. Whoever has read the old table before holds a lock that the swap waits for.
Source: postgresql.org/docs/current/mvcc-caveats.html
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003 (class_row's fields)
from typing import TYPE_CHECKING

from penstock.server.errors import in_transaction, translate_errors
from penstock.server.queries import fetch_rows

if TYPE_CHECKING:
    from penstock.server.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderSnapshot:
    """The row of ddl_snapshots.sql."""

    pid: int
    user: str | None
    application_name: str | None
    state: str | None
    transaction_start: datetime | None


def mark_end_of_load(connection: Connection) -> int:
    """Return a transaction id above all that loaded, once they have committed. Raises ServerError."""
    with in_transaction(connection, "drawing a transaction id"):
        row = connection.execute("SELECT pg_catalog.pg_current_xact_id()::xid::text::bigint").fetchone()
        assert row is not None
        return int(row[0])


def find_older_snapshots(connection: Connection, xid: int) -> tuple[OlderSnapshot, ...]:
    """Return the sessions that might find the new table empty after a swap at this moment.

    `xid` is what mark_end_of_load gave. Where there is none, no later session can become one. Other users' sessions
    show themselves only to a superuser or member of pg_read_all_stats. Raises ServerError.
    """
    with translate_errors("looking for older snapshots"):
        return tuple(fetch_rows(connection, "ddl_snapshots", OlderSnapshot, xid=str(xid)))
