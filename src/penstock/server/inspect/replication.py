"""The receivers of a server's WAL: their slots, their positions, and whether commits wait for them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.frozen import frozen
from penstock.model.server.inspection import Standby
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows


@frozen
class Received:
    """The row of received.sql, read on a standby."""

    # The end of the WAL that the standby has received.
    end_bytes: int
    # Whether it is still streaming.
    is_streaming: bool


def create_slots(connection: Connection, names: Iterable[str]) -> None:
    """Create the missing physical slots, which keep WAL from this moment on. Needs REPLICATION. Raises ServerError."""
    query = """
        SELECT pg_catalog.pg_create_physical_replication_slot(%(name)s, true)
         WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots AS s WHERE s.slot_name = %(name)s)
    """
    with translate_errors("creating replication slots"):
        for name in names:
            connection.execute(query, {"name": name})


def read_standbys(connection: Connection) -> list[Standby]:
    """Return the current WAL receivers. Needs pg_read_all_stats for names and states. Raises ServerError."""
    with translate_errors("reading the state of standbys"):
        return fetch_rows(connection, "inspect_standbys", Standby)


def commit_durably(connection: Connection) -> None:
    """Commit a transaction that writes WAL but to no table. It waits like any other commit. Raises ServerError."""
    with translate_errors("committing"):
        connection.execute("SELECT pg_catalog.pg_logical_emit_message(true, 'penstock', '')")


def read_received(connection: Connection) -> Received:
    """Return how much WAL a standby has received. Raises ServerError."""
    with translate_errors("reading what a standby has received"):
        return fetch_rows(connection, "received", Received)[0]
