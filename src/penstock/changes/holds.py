"""Reads and writes holds: records that a load or a command needs a table, or the server, to stay changed.

The last holder to end restores the table or the server. Most holds are valid only while the holder's session has its
advisory lock. Holds are read, written and removed under the lock of the table or the server, so no load can begin while
another session restores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from psycopg.rows import kwargs_row
from psycopg.types.json import Jsonb

from penstock.core.connect.connection import Connection, is_usable
from penstock.core.connect.errors import translate_errors
from penstock.core.recorded import make_recorded, reading_record
from penstock.core.sql import fetch_one
from penstock.core.values.change import Hold
from penstock.core.values.server import ServerIdentity
from penstock.ledger.locks import compose_query, find_lock_holder, try_shape_lock, unlock_shape

_LOOK_INTERVAL_S = 0.2


@contextmanager
def shape_lock(
    connection: Connection,
    target_oid: int,
    *,
    on_wait: Callable[[], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the advisory lock for changing a table, or the server if `target_oid` is SERVER, while the block runs.

    Another session can hold the lock for hours while it rebuilds indexes. If this session has to wait, `on_wait` is
    called once. The lock ends with the session. Raises ServerError.
    """
    has_reported = False
    while not try_shape_lock(connection, target_oid):
        if on_wait is not None and not has_reported:
            on_wait()
            has_reported = True
        sleep(_LOOK_INTERVAL_S)
    try:
        yield
    finally:
        if is_usable(connection):
            unlock_shape(connection, target_oid)
        else:
            # Ctrl-C has left a statement running. Closing the session releases the lock.
            connection.close()


def write_hold(connection: Connection, schema: str, hold: Hold) -> None:
    """Write a hold, or replace the holder's earlier hold. The caller has shape_lock and the holder's own lock.

    If `hold.lock` is None, the lock of the holder's load is written. Raises ServerError, TargetError.
    """
    query = compose_query(
        """
        INSERT INTO {holds} (holder, origin, target_oid, lock_key, names, until, client, reason, server)
        SELECT %(holder)s, {origin}, %(target)s::bigint::oid,
               coalesce(%(lock)s, (SELECT l.lock_key FROM ONLY {loads} AS l WHERE l.id = %(holder)s::uuid)), %(names)s,
               CASE WHEN %(stands)s THEN coalesce(%(until)s::timestamptz, 'infinity') END, %(client)s, %(reason)s,
               %(server)s::jsonb
        ON CONFLICT (holder, origin, target_oid) DO UPDATE
           SET names = excluded.names, until = excluded.until, server = excluded.server
        """,
        schema,
    )
    with translate_errors("recording a hold"):
        connection.execute(
            query,
            {
                "holder": hold.holder_id,
                "target": hold.target_oid,
                "lock": hold.lock,
                "names": list(hold.names),
                "stands": hold.stands,
                "until": hold.until,
                "client": hold.client,
                "reason": hold.reason,
                "server": None if hold.server is None else Jsonb(asdict(hold.server)),
            },
        )


def delete_holds(connection: Connection, schema: str, holders: Sequence[str], target_oid: int) -> None:
    """Remove holds on a table, or on the server. The caller has shape_lock. Raises ServerError, TargetError."""
    query = compose_query(
        "DELETE FROM ONLY {holds} WHERE holder = ANY (%s::uuid[]) AND target_oid = %s::bigint::oid", schema
    )
    with translate_errors("removing a hold"):
        connection.execute(query, [list(holders), target_oid])


def read_holds(
    connection: Connection, schema: str, *, target_oid: int | None = None, holder: str | None = None
) -> list[Hold]:
    """Return all holds, or those of one table or holder. `pid` is the backend that has the hold's lock, or None.

    A hold that `stands` needs no lock. For any other hold, only its lock decides whether its holder is alive. Raises
    ServerError, TargetError.
    """
    query = compose_query(
        """
        SELECT holder::text AS holder_id, target_oid::bigint, lock_key AS lock, names,
               coalesce(until > pg_catalog.clock_timestamp(), false) AS stands,
               CASE WHEN pg_catalog.isfinite(until) THEN until END AS until, owner::text, client, reason, made_at,
               server
          FROM ONLY {holds}
         WHERE origin = {origin}
           AND (%(target)s::bigint IS NULL OR target_oid = %(target)s::bigint::oid)
           AND (%(holder)s::uuid IS NULL OR holder = %(holder)s::uuid)
         ORDER BY made_at, holder
        """,
        schema,
    )
    with translate_errors("looking for running loads"), connection.cursor(row_factory=kwargs_row(_make_hold)) as cursor:
        holds = cursor.execute(query, {"target": target_oid, "holder": holder}).fetchall()
    return [replace(hold, pid=find_lock_holder(connection, hold.lock or "")) for hold in holds]


def _make_hold(*, names: list[str], server: dict[str, Any] | None, **fields: Any) -> Hold:
    with reading_record("which server a load has changed"):
        identity = None if server is None else make_recorded(ServerIdentity, server, part="field")
    return Hold(names=tuple(names), server=identity, **fields)


def read_time(connection: Connection) -> datetime:
    """Return the current time of the server's clock. Raises ServerError."""
    with translate_errors("reading the server's time"):
        now: datetime = fetch_one(connection, "SELECT pg_catalog.clock_timestamp()")[0]
    return now
