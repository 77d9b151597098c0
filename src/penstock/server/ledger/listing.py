"""What `penstock loads` shows: loads, their objects, what is committed, and what is missing; and forgetting a load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql
from psycopg.rows import class_row

from penstock.errors import TargetError
from penstock.model.ledger import LoadRecord, ObjectRecord
from penstock.server.errors import translate_errors
from penstock.server.ledger.committed import IS_COMPLETE
from penstock.server.ledger.schema import find_version
from penstock.server.ledger.targets import drop_landing, read_landings

if TYPE_CHECKING:
    from penstock.server.connection import Connection

_OBJECTS = """
    SELECT o.load,
           o.number,
           pg_catalog.concat_ws('.', nullif(o.target_schema, ''), o.target_table) AS "table",
           o.uri,
           o.version,
           o.size_bytes,
           s.is_complete,
           EXISTS (
               SELECT
                 FROM {targets} AS t
                WHERE t.load = o.load
                  AND t.target_oid = o.target_oid
                  AND t.kind = 'staging'
           ) AS is_staged,
           s.rows,
           s.suppressed,
           s.rejected,
           s.bytes_committed,
           s.committed_at
      FROM {objects} AS o
      CROSS JOIN LATERAL (
               SELECT {is_complete} AS is_complete,
                      coalesce(pg_catalog.sum(r.rows) FILTER (WHERE p.place IS NULL OR p.place = 1), 0)::int8 AS rows,
                      coalesce(pg_catalog.sum(r.suppressed) FILTER (WHERE p.place IS NULL OR p.place = 1), 0)::int8
                          AS suppressed,
                      coalesce(pg_catalog.sum(r.rejected) FILTER (WHERE p.place IS NULL OR p.place = 1), 0)::int8
                          AS rejected,
                      coalesce(pg_catalog.sum(upper(p.part) - lower(p.part)), 0)::int8 AS bytes_committed,
                      pg_catalog.max(r.committed_at) AS committed_at
                 FROM {ranges} AS r
                 LEFT JOIN LATERAL pg_catalog.unnest(r.ranges) WITH ORDINALITY AS p (part, place) ON true
                WHERE r.load = o.load
                  AND r.object = o.number
           ) AS s
"""

_LOADS = """
    SELECT l.id::text AS load_id,
           l.state,
           l.state = 'running' AND EXISTS (
               SELECT
                 FROM pg_catalog.pg_locks AS k
                WHERE k.locktype = 'advisory'
                  AND k.objsubid = 1
                  AND k.classid = ('x' || pg_catalog.substr(l.lock_key, 1, 8))::bit(32)::int8::oid
                  AND k.objid = ('x' || pg_catalog.substr(l.lock_key, 9, 8))::bit(32)::int8::oid
           ) AS is_active,
           l.owner::text,
           l.client,
           l.tables,
           coalesce(s.objects, 0) AS objects,
           coalesce(s.complete_objects, 0) AS complete_objects,
           (
               coalesce(s.rows, 0)
               + (SELECT coalesce(pg_catalog.sum(t.inserted + t.updated), 0) FROM {targets} AS t WHERE t.load = l.id)
           )::int8 AS rows,
           coalesce(s.bytes_committed, 0)::int8 AS bytes_committed,
           l.began_at,
           greatest(l.changed_at, s.committed_at) AS changed_at,
           extract(
               epoch FROM CASE l.state WHEN 'complete' THEN l.changed_at ELSE greatest(l.changed_at, s.committed_at) END
               - l.began_at
           )::float8 AS seconds,
           -- Standard input is not there for whoever would go on with the load.
           CASE
               WHEN NOT pg_catalog.jsonb_path_exists(l.job, '$.targets[*].sources[*] ? (@ == "-")') THEN l.job::text
           END AS job
      FROM {loads} AS l
      LEFT JOIN (
               SELECT o.load,
                      pg_catalog.count(*) AS objects,
                      pg_catalog.count(*) FILTER (WHERE o.is_complete) AS complete_objects,
                      pg_catalog.sum(o.rows) FILTER (WHERE NOT o.is_staged) AS rows,
                      pg_catalog.sum(o.bytes_committed) AS bytes_committed,
                      pg_catalog.max(o.committed_at) AS committed_at
                 FROM ({all_objects}) AS o
                GROUP BY o.load
           ) AS s
        ON s.load = l.id
     WHERE %(load)s::uuid IS NULL
        OR l.id = %(load)s::uuid
     ORDER BY l.began_at, l.id
"""


def list_loads(connection: Connection, schema: str, *, load_id: str | None = None) -> list[LoadRecord]:
    """Return the loads of a ledger, the newest last; or the one of that id. Raises ServerError."""
    if not find_version(connection, schema):
        return []
    query = sql.SQL(_LOADS).format(
        loads=sql.Identifier(schema, "loads"),
        targets=sql.Identifier(schema, "targets"),
        all_objects=_objects(schema),
    )
    with translate_errors("listing loads"), connection.cursor(row_factory=class_row(LoadRecord)) as cursor:
        return cursor.execute(query, {"load": load_id}).fetchall()


def list_objects(connection: Connection, schema: str, load_id: str) -> list[ObjectRecord]:
    """Return the objects of a load in the order of the job. Raises ServerError."""
    query = sql.SQL(
        'SELECT number, "table", uri, version, size_bytes, is_complete, rows, suppressed, rejected, bytes_committed'
        " FROM ({}) AS o WHERE o.load = %s ORDER BY o.number"
    ).format(_objects(schema))
    with translate_errors("listing a load's objects"), connection.cursor(row_factory=class_row(ObjectRecord)) as cursor:
        return cursor.execute(query, [load_id]).fetchall()


def forget_load(connection: Connection, schema: str, load_id: str) -> None:
    """Remove a load from the ledger, and the tables that were made for it; its rows stay in their tables.

    Raises TargetError, ServerError.
    """
    query = sql.SQL("DELETE FROM {} WHERE id = %s RETURNING true").format(sql.Identifier(schema, "loads"))
    with translate_errors("removing a load from the ledger"), connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '5s'")
        landings = read_landings(connection, schema, load_id)
        row = connection.execute(query, [load_id]).fetchone()
        for landing in landings.values():
            drop_landing(connection, landing)
    if row is None:
        raise no_such_load(load_id)


def no_such_load(load_id: str) -> TargetError:
    """Return the error for an id that the ledger does not have."""
    return TargetError(f"there is no load {load_id}", hint="penstock loads lists them.")


def _objects(schema: str) -> sql.Composed:
    return sql.SQL(_OBJECTS).format(
        is_complete=sql.SQL(IS_COMPLETE),
        objects=sql.Identifier(schema, "objects"),
        ranges=sql.Identifier(schema, "ranges"),
        targets=sql.Identifier(schema, "targets"),
    )
