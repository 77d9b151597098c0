"""Who wants a table to stay as loading needs it: the last one to go restores it.

A hold counts only while its load's advisory lock is held, which ends with the loader's session. Holds are looked at,
made and given up under the table's own lock, so that nobody begins while another one restores.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.model.load.shape import Hold
from penstock.server.connect.errors import translate_errors
from penstock.server.ledger.locks import find_lock_holder, try_shape_lock, unlock_shape
from penstock.server.ledger.origin import compose_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.server.connect.connection import Connection

_LOOK_INTERVAL_S = 0.2


@contextmanager
def shape_lock(
    connection: Connection,
    target_oid: int,
    *,
    on_wait: Callable[[], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Hold the lock under which a table's shape is changed; it ends with the session too.

    Who has it may be rebuilding, for hours perhaps: `on_wait` hears once that it is waited for. Raises ServerError.
    """
    is_told = False
    while not try_shape_lock(connection, target_oid):
        if on_wait is not None and not is_told:
            on_wait()
            is_told = True
        sleep(_LOOK_INTERVAL_S)
    try:
        yield
    finally:
        if not connection.closed:
            unlock_shape(connection, target_oid)


def hold_shape(connection: Connection, schema: str, *, load_id: str, target_oid: int) -> None:
    """Write down that a load wants a table in loading shape; the caller has shape_lock, and the load's own.

    Raises ServerError, TargetError.
    """
    query = sql.SQL(
        """
        INSERT INTO {holds} (load, origin, target_oid, lock_key)
        SELECT l.id, {origin}, %s, l.lock_key
          FROM ONLY {loads} AS l
         WHERE l.id = %s
        ON CONFLICT DO NOTHING
        """
    ).format(
        holds=sql.Identifier(schema, "holds"),
        loads=sql.Identifier(schema, "loads"),
        origin=compose_origin(schema),
    )
    with translate_errors("recording that the table is being loaded"):
        connection.execute(query, [target_oid, load_id])


def release_shape(connection: Connection, schema: str, *, load_id: str, target_oid: int) -> None:
    """Give a load's hold on a table up; the caller has shape_lock. Raises ServerError, TargetError."""
    query = sql.SQL("DELETE FROM ONLY {} WHERE load = %s AND target_oid = %s").format(sql.Identifier(schema, "holds"))
    with translate_errors("recording that the table is not being loaded any more"):
        connection.execute(query, [load_id, target_oid])


def read_holds(
    connection: Connection, schema: str, *, target_oid: int | None = None, load_id: str | None = None
) -> list[Hold]:
    """Return holds, those of one table or load, with the backend of each, None if its load is dead.

    This alone decides who is dead: nobody has the load's lock. Raises ServerError, TargetError.
    """
    query = sql.SQL(
        """
        SELECT load::text, target_oid::bigint, lock_key
          FROM ONLY {holds}
         WHERE origin = {origin}
           AND (%(target)s::bigint IS NULL OR target_oid = %(target)s::bigint::oid)
           AND (%(load)s::uuid IS NULL OR load = %(load)s::uuid)
         ORDER BY made_at
        """
    ).format(holds=sql.Identifier(schema, "holds"), origin=compose_origin(schema))
    with translate_errors("looking for running loads"):
        rows = connection.execute(query, {"target": target_oid, "load": load_id}).fetchall()
    return [
        Hold(load_id=load, target_oid=oid, lock=lock, pid=find_lock_holder(connection, lock))
        for load, oid, lock in rows
    ]


def find_other_holds(
    connection: Connection, schema: str, target_oid: int, *, but_load_id: str | None = None
) -> list[Hold]:
    """Return the live holds of other loads on a table; forget those whose load is dead.

    The caller has shape_lock. Raises ServerError, TargetError.
    """
    others = [hold for hold in read_holds(connection, schema, target_oid=target_oid) if hold.load_id != but_load_id]
    for hold in others:
        if hold.pid is None:
            release_shape(connection, schema, load_id=hold.load_id, target_oid=target_oid)
    return [hold for hold in others if hold.pid is not None]
