"""How the sessions of one load can block each other: foreign keys between their rows, and locks they wait for.

The transactions of all sessions stay open until the load's end. So a foreign key does not see a row that another
session has stored, and two rows with the same key wait for each other for ever. Neither the server's deadlock check nor
a timeout ends that, because the session that holds the lock is idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.frozen import frozen
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows


@frozen
class ReferenceRow:
    """The row of references.sql."""

    oid: int


@frozen
class BlockedRow:
    """The row of blocked.sql: a backend of the load that waits for a lock."""

    pid: int
    # Whether another session of the load blocks it, directly or indirectly, with a lock that can last until that
    # session's transaction ends.
    waits_for_own: bool
    # Descriptions of the sessions and prepared transactions outside the load that block it.
    others: list[str]


def find_references(connection: Connection, oid: int) -> frozenset[int]:
    """Return the OIDs of the tables that a table's foreign keys refer to. Raises ServerError."""
    with translate_errors("looking up foreign keys"):
        return frozenset(row.oid for row in fetch_rows(connection, "references", ReferenceRow, oid=oid))


def defer_constraints(connection: Connection) -> None:
    """Defer deferrable constraints to the end of the caller's transaction. Raises ServerError."""
    with translate_errors("deferring constraints"):
        connection.execute("SET CONSTRAINTS ALL DEFERRED")


def find_blocked(connection: Connection, pids: Sequence[int]) -> list[BlockedRow]:
    """Return the given backends that wait for a lock. Raises ServerError."""
    with translate_errors("reading what the load's sessions wait for"):
        return fetch_rows(connection, "blocked", BlockedRow, pids=list(pids))
