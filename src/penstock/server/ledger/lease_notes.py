"""Notes in the ledger of leases on the server's settings, which are in another database and may outlive their load.

A note is committed before its lease and removed after it. While the lease is being taken, its taker holds the note's
lock: a note whose lock is free and whose lease is not on record is done with.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.ledger.locks import find_lock_holder, try_lock, unlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.server.connect.connection import Connection

_TABLE = "lease_notes"


@contextmanager
def noting_lease(connection: Connection, schema: str, lease_id: str) -> Iterator[None]:
    """Write down that a lease is about to be taken, and run what takes it. Raises ServerError, TargetError."""
    lock = _lock_of(lease_id)
    is_locked = try_lock(connection, lock)
    assert is_locked, "a new lease's id is unique"
    try:
        query = sql.SQL("INSERT INTO {} (lease) VALUES (%s)").format(sql.Identifier(schema, _TABLE))
        with in_transaction(connection, "noting a lease on settings"):
            # Off would let a crash lose the note and keep the lease; a standby's answer is not waited for.
            connection.execute("SET LOCAL synchronous_commit = 'local'")
            connection.execute(query, [lease_id])
        yield
    finally:
        if not connection.closed:
            unlock(connection, lock)


def read_lease_notes(connection: Connection, schema: str) -> list[str]:
    """Return the leases that are noted. Raises ServerError, TargetError."""
    query = sql.SQL("SELECT lease::text FROM ONLY {} ORDER BY made_at").format(sql.Identifier(schema, _TABLE))
    with translate_errors("reading notes of leases on settings"):
        return [lease for (lease,) in connection.execute(query)]


def find_settled(connection: Connection, lease_ids: Sequence[str]) -> list[str]:
    """Return those that nobody is just taking. Raises ServerError."""
    return [lease_id for lease_id in lease_ids if find_lock_holder(connection, _lock_of(lease_id)) is None]


def delete_lease_notes(connection: Connection, schema: str, lease_ids: Sequence[str]) -> None:
    """Remove notes of leases that are not on record any more. Raises ServerError, TargetError."""
    query = sql.SQL("DELETE FROM ONLY {} WHERE lease = ANY (%s::uuid[])").format(sql.Identifier(schema, _TABLE))
    with translate_errors("removing notes of leases on settings"):
        connection.execute(query, [list(lease_ids)])


def _lock_of(lease_id: str) -> str:
    """Return the lock's identity: the lease's own lock is of the id's other half, and may be in the same database."""
    return lease_id.replace("-", "")[16:]
