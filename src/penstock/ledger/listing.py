"""Lists loads, their objects, and what is committed of these, for `penstock loads`; and removes a load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString

from psycopg import sql
from psycopg.rows import kwargs_row

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.sql import fetch_as
from penstock.core.values.accounts import UnreadableObject
from penstock.ledger.committed import IS_COMPLETE
from penstock.ledger.locks import compose_is_locked, compose_query, find_lock_holder, find_workers, try_lock_here
from penstock.ledger.rights import read_rights
from penstock.ledger.schema import has_ledger, naming_ledger
from penstock.ledger.targets import drop_landing, read_landings
from penstock.ledger.values import LoadRecord, ObjectRecord, StayingRows, TableTotals

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
                 FROM ONLY {targets} AS t
                WHERE t.load = o.load
                  AND t.target_oid = o.target_oid
                  AND t.kind = 'staging'
           ) AS is_staged,
           s.rows,
           s.suppressed,
           s.rejected,
           CASE WHEN o.unit = 'rows' AND s.is_complete THEN o.size_bytes ELSE s.bytes_committed END AS bytes_committed,
           s.committed_at
      FROM ONLY {objects} AS o
      CROSS JOIN LATERAL (
               SELECT {is_complete} AS is_complete,
                      coalesce(pg_catalog.sum(r.rows) FILTER (WHERE p.number IS NULL OR p.number = 1), 0)::int8 AS rows,
                      coalesce(pg_catalog.sum(r.suppressed) FILTER (WHERE p.number IS NULL OR p.number = 1), 0)::int8
                          AS suppressed,
                      coalesce(pg_catalog.sum(r.rejected) FILTER (WHERE p.number IS NULL OR p.number = 1), 0)::int8
                          AS rejected,
                      coalesce(
                          pg_catalog.sum(
                              -- An object that the server imported has one range, [0,1).
                              CASE o.unit WHEN 'object' THEN o.size_bytes WHEN 'rows' THEN 0
                                  ELSE upper(p.part) - lower(p.part) END
                          ),
                          0
                      )::int8 AS bytes_committed,
                      pg_catalog.max(r.committed_at) AS committed_at
                 FROM ONLY {ranges} AS r
                 LEFT JOIN LATERAL pg_catalog.unnest(r.ranges) WITH ORDINALITY AS p (part, number) ON true
                WHERE r.load = o.load
                  AND r.object = o.number
           ) AS s
"""

# The names of the tables of load l. Loads of earlier versions have recorded a table that they created without a schema
# under its bare name, and its objects with the schema.
_NAMES = """
    SELECT coalesce(
               (
                   SELECT pg_catalog.concat_ws('.', o.target_schema, o.target_table)
                     FROM ONLY {objects} AS o
                    WHERE o.load = l.id
                      AND o.target_table = n.name
                      AND o.target_schema <> ''
                      AND pg_catalog.concat_ws('.', o.target_schema, o.target_table) <> ALL (l.tables)
                    LIMIT 1
               ),
               n.name
           ) AS name
      FROM pg_catalog.unnest(l.tables) WITH ORDINALITY AS n (name, number)
     ORDER BY n.number
"""

_LOADS = """
    SELECT l.id::text AS load_id,
           l.state,
           l.state = 'running' AND {is_locked} AS is_active,
           l.owner::text,
           l.client,
           ARRAY({names}) AS tables,
           coalesce(s.objects, 0) AS objects,
           coalesce(s.complete_objects, 0) AS complete_objects,
           (
               coalesce(s.rows, 0)
               + (
                   SELECT coalesce(pg_catalog.sum(t.inserted + t.updated), 0)
                     FROM ONLY {targets} AS t
                    WHERE t.load = l.id
               )
           )::int8 AS rows,
           coalesce(s.rejected, 0)::int8 AS rejected,
           coalesce(s.bytes_committed, 0)::int8 AS bytes_committed,
           l.began_at,
           greatest(l.changed_at, s.committed_at) AS changed_at,
           extract(
               epoch FROM CASE l.state WHEN 'complete' THEN l.changed_at ELSE greatest(l.changed_at, s.committed_at) END
               - l.began_at
           )::float8 AS seconds,
           -- A load from standard input cannot be resumed without its input.
           CASE
               WHEN NOT pg_catalog.jsonb_path_exists(l.job, '$.targets[*].sources[*] ? (@ == "-")') THEN l.job::text
           END AS job,
           coalesce(l.meaning -> 'unreadable', '[]')::text AS unreadable
      FROM (
               SELECT *
                 FROM ONLY {loads} AS l
                WHERE (%(load)s::uuid IS NULL OR l.id = %(load)s::uuid)
                  AND (%(since)s::timestamptz IS NULL OR l.began_at >= %(since)s::timestamptz)
                  AND (
                          %(into)s::text IS NULL
                       OR EXISTS (
                              SELECT
                                FROM ({names}) AS t
                               WHERE %(into)s::text IN (t.name, pg_catalog.split_part(t.name, '.', 2))
                          )
                      )
                ORDER BY l.began_at DESC, l.id DESC
                LIMIT %(limit)s::bigint
           ) AS l
      LEFT JOIN (
               SELECT o.load,
                      pg_catalog.count(*) AS objects,
                      pg_catalog.count(*) FILTER (WHERE o.is_complete) AS complete_objects,
                      pg_catalog.sum(o.rows) FILTER (WHERE NOT o.is_staged) AS rows,
                      pg_catalog.sum(o.rejected) AS rejected,
                      pg_catalog.sum(o.bytes_committed) AS bytes_committed,
                      pg_catalog.max(o.committed_at) AS committed_at
                 FROM ({all_objects}) AS o
                GROUP BY o.load
           ) AS s
        ON s.load = l.id
     ORDER BY l.began_at, l.id
"""

# How many rows of a load may still be in each table. Rows of a dropped table, or of a table that a later load has
# truncated, do not count. Staged rows are in the table once they are merged; rows of a replacing table are there once
# the load is complete.
_STAYING = """
    SELECT pg_catalog.concat_ws('.', nullif(s.schema, ''), s."table") AS "table", pg_catalog.sum(s.rows)::int8 AS rows
      FROM (
               SELECT {object_oid} AS oid, o.target_schema AS schema, o.target_table AS "table", r.rows
                 FROM ONLY {objects} AS o
                 JOIN ONLY {ranges} AS r ON r.load = o.load AND r.object = o.number
                 JOIN ONLY {loads} AS l ON l.id = o.load
                WHERE o.load = %(load)s
                  AND NOT EXISTS (
                          SELECT
                            FROM ONLY {targets} AS t
                           WHERE t.load = o.load
                             AND t.target_oid = o.target_oid
                             AND (t.kind = 'staging' OR (t.kind = 'replacement' AND l.state = 'running'))
                      )
               UNION ALL
               SELECT {target_oid}, t.target_schema, t.target_table, t.inserted + t.updated
                 FROM ONLY {targets} AS t
                WHERE t.load = %(load)s
                  AND t.kind = 'staging'
           ) AS s
     WHERE EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = s.oid)
       AND NOT EXISTS (
               SELECT
                 FROM ONLY {targets} AS t
                 JOIN ONLY {loads} AS l ON l.id = %(load)s
                WHERE {target_oid} = s.oid
                  AND t.load <> l.id
                  AND t.truncated_at > l.changed_at
                  AND l.state = 'complete'
           )
     GROUP BY 1
    HAVING pg_catalog.sum(s.rows) > 0
     ORDER BY 1
"""


# A row of `ranges` with a negative start subtracts from `rejected` the records that were loaded later.
_TOTALS = """
    SELECT s."table",
           extract(epoch FROM pg_catalog.max(l.changed_at) FILTER (WHERE l.state = 'complete'))::float8
               AS last_success_s,
           coalesce(pg_catalog.sum(s.rows), 0)::int8 AS rows,
           coalesce(pg_catalog.sum(s.rejected), 0)::int8 AS rejected,
           pg_catalog.count(*) FILTER (WHERE l.state = 'running') AS unfinished,
           pg_catalog.count(*) FILTER (WHERE l.state = 'running' AND {is_locked}) AS active,
           extract(epoch FROM pg_catalog.min(l.began_at) FILTER (WHERE l.state = 'running'))::float8
               AS oldest_unfinished_s
      FROM ONLY {loads} AS l
      JOIN (
               SELECT p.load, p."table", pg_catalog.sum(p.rows) AS rows, pg_catalog.sum(p.rejected) AS rejected
                 FROM (
                          SELECT l.id AS load, t.name AS "table", 0 AS rows, 0 AS rejected
                            FROM ONLY {loads} AS l
                           CROSS JOIN LATERAL ({names}) AS t
                           UNION ALL
                          SELECT o.load, o."table", CASE WHEN NOT o.is_staged THEN o.rows END, o.rejected
                            FROM ({all_objects}) AS o
                           UNION ALL
                          SELECT t.load,
                                 pg_catalog.concat_ws('.', nullif(t.target_schema, ''), t.target_table),
                                 t.inserted + t.updated,
                                 0
                            FROM ONLY {targets} AS t
                           WHERE t.kind = 'staging'
                      ) AS p
                GROUP BY p.load, p."table"
           ) AS s
        ON s.load = l.id
     GROUP BY s."table"
     ORDER BY s."table"
"""


def list_loads(
    connection: Connection,
    schema: str,
    *,
    load_id: str | None = None,
    since: datetime | None = None,
    into: str | None = None,
    limit: int | None = None,
) -> list[LoadRecord]:
    """Return the loads of a ledger, the newest last, or only the load `load_id`. Raises ServerError.

    `into` is a table, with or without its schema; if there are more than `limit` loads, the newest are returned.
    """
    if not has_ledger(connection, schema):
        return []
    values = {"load": load_id, "since": since, "into": into, "limit": limit}
    with naming_ledger(schema), translate_errors("listing loads"):
        cursor = connection.cursor(row_factory=kwargs_row(_make_record))
        return cursor.execute(_compose(_LOADS, schema), values).fetchall()


def _make_record(*, unreadable: str, **fields: Any) -> LoadRecord:
    return LoadRecord(unreadable=tuple(UnreadableObject(**item) for item in json.loads(unreadable)), **fields)


def sum_up_tables(connection: Connection, schema: str) -> list[TableTotals]:
    """Return what the ledger records about each loaded table, ordered by name. Raises ServerError."""
    if not has_ledger(connection, schema):
        return []
    with naming_ledger(schema), translate_errors("summing up loads"):
        return fetch_as(connection, TableTotals, _compose(_TOTALS, schema))


def list_objects(connection: Connection, schema: str, load_id: str) -> list[ObjectRecord]:
    """Return the objects of a load in the order of the job. Raises ServerError."""
    query = compose_query(
        'SELECT number, "table", uri, version, size_bytes, is_complete, is_staged, rows, suppressed, rejected,'
        " bytes_committed FROM ({all_objects}) AS o WHERE o.load = %s ORDER BY o.number",
        schema,
        all_objects=_objects(schema),
    )
    with translate_errors("listing a load's objects"):
        return fetch_as(connection, ObjectRecord, query, [load_id])


def forget_load(connection: Connection, schema: str, load_id: str, *, keeps_rows: bool = False) -> list[StayingRows]:
    """Remove a load from the ledger, drop the tables created for it, and return how many of its rows stay in tables.

    Raises TargetError if the load is running, if rows stay and `keeps_rows` is false, or if it is another role's load.
    Raises ServerError.
    """
    with in_transaction(connection, "removing a load from the ledger"):
        connection.execute("SET LOCAL lock_timeout = '5s'")
        rights = read_rights(connection, schema, load_id)
        if rights is None:
            raise no_such_load(load_id)
        refuse_at_work(connection, schema, load_id)
        # Once the load's row is locked, no more of its rows can be committed. Row security lets only the load's role
        # lock it.
        held = compose_query("SELECT FROM ONLY {loads} WHERE id = %s FOR UPDATE", schema)
        if connection.execute(held, [load_id]).fetchone() is None:
            rights.refuse_other_role("forget")
            raise no_such_load(load_id)
        staying = find_staying(connection, schema, load_id)
        if staying and not keeps_rows:
            raise _has_rows(load_id, staying)
        for landing in read_landings(connection, schema, load_id).values():
            drop_landing(connection, schema, landing, load_id=load_id, role=rights.owner)
        connection.execute(compose_query("DELETE FROM ONLY {loads} WHERE id = %s", schema), [load_id])
    return staying


def _has_rows(load_id: str, staying: Sequence[StayingRows]) -> TargetError:
    places = ", ".join(f'{each.rows:,} in "{each.table}"' for each in staying)
    return TargetError(
        f"load {load_id} has rows in its table",
        detail=f"Committed rows: {places}. Without the ledger the same sources would be loaded a second time.",
        hint="Use --keep-rows to keep them there, or after you have removed them.",
    )


def refuse_at_work(connection: Connection, schema: str, load_id: str) -> None:
    """Raise TargetError if a process is running a load.

    Otherwise keep others from running it until the transaction ends.
    """
    query = compose_query("SELECT lock_key FROM ONLY {loads} WHERE id = %s", schema)
    row = connection.execute(query, [load_id]).fetchone()
    is_locked = row is not None and not try_lock_here(connection, row[0])
    holder = find_lock_holder(connection, row[0]) if row is not None and is_locked else None
    pids = dict.fromkeys([*([] if holder is None else [holder]), *find_workers(connection, load_id)])
    if is_locked or pids:
        raise TargetError(
            f"load {load_id} is running",
            detail=f"Its sessions are backends {', '.join(map(str, pids))}." if pids else None,
            hint="Wait for it, or end it first: "
            f"{' '.join(f'SELECT pg_terminate_backend({pid});' for pid in pids) or 'then try again.'}",
        )


def find_staying(connection: Connection, schema: str, load_id: str) -> list[StayingRows]:
    """Return how many rows of a load may still be in each table, according to the ledger. Raises ServerError."""
    with translate_errors("counting the load's rows"):
        return fetch_as(connection, StayingRows, compose_query(_STAYING, schema), {"load": load_id})


def no_such_load(load_id: str) -> TargetError:
    """Return the error for an id that the ledger does not have."""
    return TargetError(f"load {load_id} does not exist", hint="See penstock loads.")


def _compose(text: LiteralString, schema: str) -> sql.Composed:
    return compose_query(
        text,
        schema,
        all_objects=_objects(schema),
        names=compose_query(_NAMES, schema),
        is_locked=compose_is_locked("l"),
    )


def _objects(schema: str) -> sql.Composed:
    return compose_query(_OBJECTS, schema, is_complete=sql.SQL(IS_COMPLETE))
