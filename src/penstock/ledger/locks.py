"""Composes short statements on the ledger's tables, and takes the locks of loads.

The other statements are in sql/. There, `:"ledger"` is the ledger's schema. A loaded table is found by its oid if the
oid was recorded in this database, otherwise by its name (sql/parts/object_oid.sql).

An oid is valid in one database only. In a restored dump, a copy of a database or a logical replica, a table has another
oid, and the old oid may belong to another table. So each row with oids also has an origin: the cluster's system
identifier, the database's oid, and the oid of the ledger's table loads, which differs if a dump was restored into the
same database. If a row's origin is not the present one, its oids are not valid here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, LiteralString

from psycopg import sql

from penstock.core.catalogue.lock_watch import read_limit_s
from penstock.core.catalogue.locking import LOCK_NOT_AVAILABLE
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import explain_end, translate_errors
from penstock.core.errors import ServerError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, run_query

TABLES: Final = frozenset(("changes", "claims", "holds", "loads", "members", "objects", "ranges", "rejects", "targets"))


def compose_query(text: LiteralString, schema: str, **parts: sql.Composable) -> sql.Composed:
    """Return a statement on a ledger: `{loads}` in the text stands for its table loads, and so on for all tables."""
    return sql.SQL(text).format(**_tables(schema), **parts)


@cache
def _tables(schema: str) -> Mapping[str, sql.Identifier]:
    return {name: sql.Identifier(schema, name) for name in TABLES}


# The first key of the two-key locks that mark backends: "pens" in ASCII.
_MARK = 0x70656E73
# The first key of the two-key locks that mark the backends of one member of a load: "penm".
_MEMBER = 0x70656E6D
# The first key of the locks for changing a table's indexes and settings: "pent".
_SHAPE = 0x70656E74
# The first key of the locks for adding objects to loads: "peno".
_OBJECTS = 0x70656E6F


def try_lock(connection: Connection, identity: str) -> bool:
    """Take the advisory lock of a load for this session. Return False if another session has it.

    `identity` is the load's digest in hexadecimal; its first 64 bits are the key. Raises ServerError.
    """
    return send_lock(connection, identity)()


def send_lock(connection: Connection, identity: str) -> Callable[[], bool]:
    """Send the query of `try_lock` in a pipeline, without waiting. The returned function waits for the result."""
    with translate_errors("locking the load"):
        cursor = connection.execute("SELECT pg_catalog.pg_try_advisory_lock(%s)", [_lock_key(identity)])

    def is_locked() -> bool:
        with translate_errors("locking the load"):
            return cursor.fetchone() == (True,)

    return is_locked


def try_lock_here(connection: Connection, identity: str) -> bool:
    """Take the advisory lock of a load until the transaction ends. Return False if another session has it.

    `identity` is the load's digest in hexadecimal. Raises ServerError.
    """
    with translate_errors("locking the load"):
        query = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
        return connection.execute(query, [_lock_key(identity)]).fetchone() == (True,)


@slotted
class LockHolder:
    """The row of lock_holder.sql: a backend that has an advisory lock."""

    pid: int | None
    # The name of a prepared transaction, None if the holder is a backend.
    gid: str | None
    role: str | None
    # Whether the backend cannot be one of penstock's.
    is_stranger: bool

    def __str__(self) -> str:
        who = f'prepared transaction "{self.gid}"' if self.pid is None else f"backend {self.pid}"
        return who if self.role is None else f"{who}, user {self.role}"


def find_lock_holder(connection: Connection, identity: str) -> int | None:
    """Return the pid of the backend that has the advisory lock of a load, or None if no backend has it.

    `identity` is the load's digest in hexadecimal. Raises ServerError.
    """
    holder = _find_holder(connection, "", _lock_keys(identity))
    return None if holder is None else holder.pid


def _find_holder(connection: Connection, schema: str, keys: tuple[int, int, int]) -> LockHolder | None:
    high, low, count = keys
    with translate_errors("looking for the holder of a lock"):
        rows = fetch_rows(
            connection, "ledger/lock_holder", LockHolder, high=high, low=low & 0xFFFFFFFF, keys=count, schema=schema
        )
    return next(iter(rows), None)


class LockPatience:
    """The wait for one advisory lock. The caller tries the lock again and again, and calls `look` between the tries.

    A wait for another load has no limit, because a load may have the lock for hours. But any role that may connect can
    take the lock. If the holder cannot be a load, `look` raises ServerError after the seconds that `read_limit_s`
    returns, as for any other lock. Without a ledger (`schema` is empty), nobody can be told from penstock, so the wait
    has no limit.
    """

    def __init__(
        self,
        connection: Connection,
        schema: str,
        *,
        # The load whose lock is tried, or the table whose lock for changing it is tried.
        identity: str | None = None,
        target_oid: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._keys = (_SHAPE, target_oid, 2) if identity is None else _lock_keys(identity)
        self._clock = clock
        self._since_s: float | None = None

    def look(self) -> LockHolder | None:
        """Return who has the lock, None if nobody has it.

        Raises ServerError if a backend that cannot be penstock's keeps it for longer than the seconds of
        `read_limit_s`.
        """
        holder = _find_holder(self._connection, self._schema, self._keys)
        now_s, limit_s = self._clock(), read_limit_s(self._connection)
        if holder is None or not (self._schema and holder.is_stranger) or self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= limit_s:
            raise ServerError(
                f"could not get a lock within {limit_s:g} s",
                detail=f"It is held by {holder}, which may not write to the ledger.",
                hint=explain_end(() if holder.gid is None else [holder.gid]),
                sqlstate=LOCK_NOT_AVAILABLE,
            )
        return holder


def find_workers(connection: Connection, load_id: str, *, member: int | None = None) -> list[int]:
    """Return the pids of other backends with open transactions that load rows of a load, or of one of its members.

    Raises ServerError.
    """
    with translate_errors("looking for the load's sessions"):
        space, key = (_MARK, _mark_key(load_id)) if member is None else (_MEMBER, _member_key(load_id, member))
        rows = run_query(connection, "ledger/workers", space=space, key=key & 0xFFFFFFFF).fetchall()
    return [int(pid) for (pid,) in rows]


def mark(load_id: str) -> sql.Composed:
    """Return an SQL expression that marks the backend as one that loads rows of a load, by an advisory lock.

    The lock ends with the transaction.
    """
    return sql.SQL("pg_catalog.pg_try_advisory_xact_lock_shared({}, {})").format(
        sql.Literal(_MARK), sql.Literal(_mark_key(load_id))
    )


def mark_member(load_id: str, member: int | None) -> sql.Composed:
    """Return an SQL expression that marks the backend as one of a member of a load, by an advisory lock.

    The lock ends with the transaction.
    """
    return sql.SQL("pg_catalog.pg_try_advisory_xact_lock_shared({}, {})").format(
        sql.Literal(_MEMBER), sql.Literal(_member_key(load_id, member or 0))
    )


def lock_objects(connection: Connection, target_oids: Iterable[int]) -> None:
    """Keep other loads from recording files for these tables until this transaction ends.

    This takes an advisory lock for each table, and waits while another load has it. Raises psycopg.Error.
    """
    # Lock in ascending order, so that two loads cannot wait for each other.
    for oid in sorted(set(target_oids)):
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s, %s)", [_OBJECTS, _signed(oid)])


def try_shape_lock(connection: Connection, target_oid: int) -> bool:
    """Take the advisory lock for changing a table's indexes, keys and triggers. Return False if another session has it.

    The lock ends with the session. Raises ServerError.
    """
    with translate_errors("locking a table's indexes, keys and triggers"):
        query = "SELECT pg_catalog.pg_try_advisory_lock(%s, %s)"
        return connection.execute(query, [_SHAPE, _signed(target_oid)]).fetchone() == (True,)


def unlock_shape(connection: Connection, target_oid: int) -> None:
    """Release the lock that `try_shape_lock` has taken. Raises ServerError."""
    with translate_errors("unlocking a table's indexes, keys and triggers"):
        connection.execute("SELECT pg_catalog.pg_advisory_unlock(%s, %s)", [_SHAPE, _signed(target_oid)])


def _lock_keys(identity: str) -> tuple[int, int, int]:
    """Return the two halves of the advisory lock's key for a load, and that it is one key."""
    key = _lock_key(identity) & (2**64 - 1)
    return key >> 32, key & 0xFFFFFFFF, 1


def _lock_key(identity: str) -> int:
    """Return the advisory lock's key for a load: the digest's first 64 bits, signed."""
    key = int(identity[:16], 16)
    return key - 2**64 if key >= 2**63 else key


def _mark_key(load_id: str) -> int:
    return _signed(int(load_id.replace("-", "")[:8], 16))


def _member_key(load_id: str, member: int) -> int:
    return _signed(int(load_id.replace("-", "")[:8], 16) ^ member)


def _signed(key: int) -> int:
    return key - 2**32 if key >= 2**31 else key
