"""Who wants a table to stay as loading needs it: the last one to go puts things back.

A hold counts only while its load's advisory lock is held, which ends with the loader's session. Holds are looked at,
made and given up under the table's own lock, so that nobody begins while another one puts things back.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.model.load.shape import Hold
from penstock.server.connect.errors import translate_errors
from penstock.server.ledger.locks import find_lock_holder, try_shape_lock, unlock_shape

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
        INSERT INTO {} (load, target_oid, lock_key)
        SELECT l.id, %s, l.lock_key
          FROM {} AS l
         WHERE l.id = %s
        ON CONFLICT DO NOTHING
        """
    ).format(sql.Identifier(schema, "holds"), sql.Identifier(schema, "loads"))
    with translate_errors("recording that the table is being loaded"):
        connection.execute(query, [target_oid, load_id])


def release_shape(connection: Connection, schema: str, *, load_id: str, target_oid: int) -> None:
    """Give a load's hold on a table up; the caller has shape_lock. Raises ServerError, TargetError."""
    query = sql.SQL("DELETE FROM {} WHERE load = %s AND target_oid = %s").format(sql.Identifier(schema, "holds"))
    with translate_errors("recording that the table is not being loaded any more"):
        connection.execute(query, [load_id, target_oid])


def find_other_holds(
    connection: Connection, schema: str, target_oid: int, *, but_load_id: str | None = None
) -> list[Hold]:
    """Return the live holds of other loads on a table; forget those whose loader has gone.

    The caller has shape_lock. Raises ServerError, TargetError.
    """
    query = sql.SQL("SELECT load::text, lock_key FROM {} WHERE target_oid = %s").format(sql.Identifier(schema, "holds"))
    with translate_errors("looking for other loads of the table"):
        rows = connection.execute(query, [target_oid]).fetchall()
    holds = []
    for load_id, lock_key in rows:
        if load_id == but_load_id:
            continue
        pid = find_lock_holder(connection, lock_key)
        if pid is None:
            release_shape(connection, schema, load_id=load_id, target_oid=target_oid)
        else:
            holds.append(Hold(load_id=load_id, target_oid=target_oid, pid=pid))
    return holds


def find_holds_of(connection: Connection, schema: str, load_id: str) -> list[tuple[int, str]]:
    """Return the oids of the tables that a load holds, with its lock. Raises ServerError, TargetError."""
    query = sql.SQL("SELECT target_oid, lock_key FROM {} WHERE load = %s").format(sql.Identifier(schema, "holds"))
    with translate_errors("looking for the tables of a load"):
        return [(int(oid), str(lock)) for oid, lock in connection.execute(query, [load_id]).fetchall()]


def read_holds(connection: Connection, schema: str) -> list[tuple[int, str, str]]:
    """Return all holds, live or not: the table's oid, the load, its lock. Raises ServerError, TargetError."""
    query = sql.SQL("SELECT target_oid, load::text, lock_key FROM {} ORDER BY made_at").format(
        sql.Identifier(schema, "holds")
    )
    with translate_errors("looking for running loads"):
        return [(int(oid), str(load), str(lock)) for oid, load, lock in connection.execute(query).fetchall()]
