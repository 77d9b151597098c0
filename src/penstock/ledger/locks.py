"""Composes statements on the ledger's tables, finds loaded tables by oid or name, and takes the locks of loads.

A loaded table is found by its oid if the oid was recorded in this database, otherwise by its name.

An oid is valid in one database only. In a restored dump, a copy of a database or a logical replica, a table has another
oid, and another table may have its old one. So each row with oids also has an origin: the cluster's system identifier,
the database's oid, and the oid of the ledger's table loads, which differs if a dump was restored into the same
database. If a row's origin is not the present one, its oids are not valid here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, LiteralString

from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors

TABLES: Final = frozenset(("changes", "claims", "holds", "loads", "members", "objects", "ranges", "rejects", "targets"))

# If a role has no EXECUTE on pg_control_system, a statement that names this function fails, even if it does not call
# it. So ts_stat calls it, which gets the query as a text. For such a role, only the other two parts of the origin are
# compared.
_ORIGIN = """
    (
        SELECT pg_catalog.concat_ws(
                   '/',
                   CASE
                       WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
                       THEN (
                           SELECT s.word
                             FROM pg_catalog.ts_stat(
                                      'SELECT pg_catalog.array_to_tsvector(ARRAY[c.system_identifier::pg_catalog.text])'
                                      ' FROM pg_catalog.pg_control_system() AS c'
                                  ) AS s
                       )
                       ELSE 'unknown'
                   END,
                   d.oid,
                   pg_catalog.to_regclass({loads})::pg_catalog.oid
               )
          FROM pg_catalog.pg_database AS d
         WHERE d.datname = pg_catalog.current_database()
    )
"""


def compose_query(text: LiteralString, schema: str, **parts: sql.Composable) -> sql.Composed:
    """Return a statement on a ledger.

    `{loads}` in the text stands for the ledger's table loads, and so on for each table.

    `{schema}` stands for the ledger's schema, and `{origin}` for the origin of the oids that are recorded now.
    `{object_oid}`, `{target_oid}` and `{change_oid}` are expressions for the oid, in this database, of the table that a
    row names: row o of table objects, row t of targets, row c of changes. `{landing_oid}` is the oid of the table that
    was created for row t.
    """
    return sql.SQL(text).format(**_parts(schema), **parts)


@cache
def _parts(schema: str) -> Mapping[str, sql.Composable]:
    origin = compose_origin(schema)
    return {
        "schema": sql.Identifier(schema),
        "origin": origin,
        "object_oid": compose_oid("o", origin),
        "target_oid": compose_oid("t", origin),
        "change_oid": compose_oid("c", origin),
        "landing_oid": compose_oid("t", origin, prefix="landing"),
        **{name: sql.Identifier(schema, name) for name in TABLES},
    }


def compose_origin(schema: str) -> sql.Composed:
    """Return the expression for the origin of the oids that are recorded now."""
    return sql.SQL(_ORIGIN).format(loads=sql.Literal(sql.Identifier(schema, "loads").as_string(None)))


def compose_oid(row: LiteralString, origin: sql.Composable, *, prefix: LiteralString = "target") -> sql.Composed:
    """Return the SQL expression for the oid of a row's table in this database. It is null if the table does not exist.

    `row` is the alias of the row, `origin` is the result of `compose_origin`, and `prefix` begins the column names.
    """
    return sql.SQL(
        """
        CASE
            WHEN {row}.origin = {origin} THEN {row}.{prefix}_oid
            ELSE (
                SELECT relation.oid
                  FROM pg_catalog.pg_class AS relation
                  JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
                 WHERE namespace.nspname = {row}.{prefix}_schema
                   AND relation.relname = {row}.{prefix}_table
            )
        END
        """
    ).format(row=sql.SQL(row), origin=origin, prefix=sql.SQL(prefix))


# The first key of the two-key locks that mark backends: "pens" in ASCII.
_MARK = 0x70656E73
# The first key of the two-key locks that mark the backends of one member of a load: "penm".
_MEMBER = 0x70656E6D
# The first key of the locks for changing a table's indexes and settings: "pent".
_SHAPE = 0x70656E74
# The first key of the locks for adding objects to loads: "peno".
_OBJECTS = 0x70656E6F


_IS_LOCKED: Final = """
    EXISTS (
        SELECT
          FROM pg_catalog.pg_locks AS k
         WHERE k.locktype = 'advisory'
           AND k.granted
           AND k.objsubid = 1
           AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
           AND k.classid = ('x' || pg_catalog.substr({row}.lock_key, 1, 8))::bit(32)::int8::oid
           AND k.objid = ('x' || pg_catalog.substr({row}.lock_key, 9, 8))::bit(32)::int8::oid
    )
"""


def try_lock(connection: Connection, identity: str) -> bool:
    """Take the lock of a load for this session. Return False if another session has it.

    `identity` is a digest in hexadecimal; its first 64 bits are the key. Raises ServerError.
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
    """Take the lock of a load until the transaction ends.

    Return False if another session has it. Raises ServerError.
    """
    with translate_errors("locking the load"):
        query = "SELECT pg_catalog.pg_try_advisory_xact_lock(%s)"
        return connection.execute(query, [_lock_key(identity)]).fetchone() == (True,)


def find_lock_holder(connection: Connection, identity: str) -> int | None:
    """Return the backend that has the lock on a load, or None if no backend has it."""
    key = _lock_key(identity) & (2**64 - 1)
    query = """
        SELECT l.pid
          FROM pg_catalog.pg_locks AS l
         WHERE l.locktype = 'advisory'
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
           AND l.classid = %s::oid
           AND l.objid = %s::oid
           AND l.objsubid = 1
           AND l.granted
    """
    with translate_errors("looking for the load's lock"):
        row = connection.execute(query, [key >> 32, key & 0xFFFFFFFF]).fetchone()
    return None if row is None else int(row[0])


def compose_is_locked(row: LiteralString) -> sql.Composed:
    """Return the condition that a backend of this database has the lock in a row. `row` is the row's alias."""
    return sql.SQL(_IS_LOCKED).format(row=sql.SQL(row))


def find_workers(connection: Connection, load_id: str, *, member: int | None = None) -> list[int]:
    """Return other backends with open transactions that load rows of a load, or only those of one of its members."""
    query = """
        SELECT l.pid
          FROM pg_catalog.pg_locks AS l
         WHERE l.locktype = 'advisory'
           AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
           AND l.classid = %s::oid
           AND l.objid = %s::oid
           AND l.objsubid = 2
           AND l.pid <> pg_catalog.pg_backend_pid()
         ORDER BY l.pid
    """
    with translate_errors("looking for the load's sessions"):
        keys = (_MARK, _mark_key(load_id)) if member is None else (_MEMBER, _member_key(load_id, member))
        rows = connection.execute(query, [keys[0], keys[1] & 0xFFFFFFFF]).fetchall()
    return [int(pid) for (pid,) in rows]


def mark(load_id: str) -> sql.Composed:
    """Return the SQL expression that marks the backend as one that runs a load, until its transaction ends."""
    return sql.SQL("pg_catalog.pg_try_advisory_xact_lock_shared({}, {})").format(
        sql.Literal(_MARK), sql.Literal(_mark_key(load_id))
    )


def mark_member(load_id: str, member: int | None) -> sql.Composed:
    """Return the SQL expression that marks the backend as one of a member, until its transaction ends."""
    return sql.SQL("pg_catalog.pg_try_advisory_xact_lock_shared({}, {})").format(
        sql.Literal(_MEMBER), sql.Literal(_member_key(load_id, member or 0))
    )


def lock_objects(connection: Connection, target_oids: Iterable[int]) -> None:
    """Keep other loads from adding objects of these tables until this transaction ends. Raises psycopg.Error."""
    # Lock in ascending order, so that two loads cannot wait for each other.
    for oid in sorted(set(target_oids)):
        connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s, %s)", [_OBJECTS, _signed(oid)])


def try_shape_lock(connection: Connection, target_oid: int) -> bool:
    """Take the lock for changing a table's indexes, keys and triggers for this session.

    Returns False if another session has it. Raises ServerError.
    """
    with translate_errors("locking a table's indexes, keys and triggers"):
        query = "SELECT pg_catalog.pg_try_advisory_lock(%s, %s)"
        return connection.execute(query, [_SHAPE, _signed(target_oid)]).fetchone() == (True,)


def unlock_shape(connection: Connection, target_oid: int) -> None:
    """Release the lock of `try_shape_lock`. Raises ServerError."""
    with translate_errors("unlocking a table's indexes, keys and triggers"):
        connection.execute("SELECT pg_catalog.pg_advisory_unlock(%s, %s)", [_SHAPE, _signed(target_oid)])


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
