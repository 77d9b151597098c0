"""Looks up in the ledger what concerns a load that is about to begin, in one round trip."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psycopg.rows import class_row

from penstock.frozen import frozen
from penstock.model.load.ledger import KnownObject, LedgerObject, LoadState
from penstock.model.server.table import TableName
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import in_pipeline, translate_errors
from penstock.server.ledger.origin import compose_query
from penstock.server.ledger.trust import naming_ledger
from penstock.server.sql.queries import fetch_as

# The identity contains oids, so a load that was recorded in another database is found by the key of its lock.
_RUNNING = """
    SELECT l.id::text,
           (SELECT coalesce(max(o.number) + 1, 0) FROM ONLY {objects} AS o WHERE o.load = l.id),
           s.is_copied
      FROM ONLY {loads} AS l
      CROSS JOIN LATERAL (
               SELECT EXISTS (SELECT FROM ONLY {objects} AS o WHERE o.load = l.id AND o.origin <> {origin})
           ) AS s (is_copied)
     WHERE l.state = 'running'
       AND (l.identity = %(identity)s OR (l.lock_key = %(lock)s AND s.is_copied))
     ORDER BY l.identity <> %(identity)s, l.began_at DESC
     LIMIT 1
"""

# A table that a load has replaced has no rows of earlier loads, as if it had been truncated. IS NOT DISTINCT FROM keeps
# the planner from hashing the whole table by the oid's expression, here and below.
_KNOWN = """
      WITH emptied AS MATERIALIZED (
               SELECT {target_oid} AS oid,
                      max(CASE WHEN t.kind = 'replacement' THEN l.event ELSE t.truncation_event END) AS event
                 FROM ONLY {targets} AS t
                 JOIN ONLY {loads} AS l ON l.id = t.load
                WHERE t.truncated_at IS NOT NULL
                   OR (t.kind = 'replacement' AND l.state = 'complete')
                GROUP BY 1
           )
    SELECT o.load::text AS load_id, l.identity, l.state, o.number, w.oid AS target_oid, o.uri, o.version, (
               SELECT coalesce(sum(r.rows), 0)::int8
                 FROM ONLY {ranges} AS r
                WHERE r.load = o.load
                  AND r.object = o.number
                  AND NOT (
                          -- Staged, and no row was stored: a transform may filter out all records.
                          SELECT coalesce(bool_and(t.inserted + t.updated + t.existing = 0), false)
                            FROM ONLY {targets} AS t
                           WHERE t.load = o.load
                             AND t.target_oid = o.target_oid
                             AND t.kind = 'staging'
                             AND l.state = 'complete'
                      )
           ) AS rows, l.state = 'complete' AND EXISTS (
               SELECT
                 FROM emptied AS e
                WHERE e.oid = ANY (
                          ARRAY(
                              SELECT w.oid
                               UNION ALL
                              SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(w.oid) AS a
                          )
                      )
                  AND e.event > l.event
           ) AS is_superseded, o.size_bytes, o.ctime_ns
      FROM ROWS FROM (unnest(%(oids)s::oid[]), unnest(%(uris)s::text[])) AS w (oid, uri)
      JOIN ONLY {objects} AS o
        ON o.uri = w.uri
       AND {object_oid} IS NOT DISTINCT FROM w.oid
      JOIN ONLY {loads} AS l
        ON l.id = o.load
     ORDER BY l.changed_at
"""

# Objects that were loaded into the same table under another name: their version and size are the same.
_RENAMED = """
    SELECT DISTINCT ON (w.number) w.number, o.uri, o.load::text
      FROM ROWS FROM (
               pg_catalog.unnest(%(numbers)s::int[]), pg_catalog.unnest(%(oids)s::oid[]),
               pg_catalog.unnest(%(uris)s::text[]), pg_catalog.unnest(%(versions)s::text[]),
               pg_catalog.unnest(%(sizes)s::bigint[])
           ) AS w (number, oid, uri, version, size_bytes)
      JOIN ONLY {objects} AS o
        ON o.version = w.version
       AND o.size_bytes = w.size_bytes
       AND {object_oid} IS NOT DISTINCT FROM w.oid
       AND o.uri <> w.uri
      JOIN ONLY {loads} AS l
        ON l.id = o.load
     WHERE l.state = 'complete'
       AND w.size_bytes > 0
     ORDER BY w.number, l.changed_at DESC
"""

_CHANGED = """
    SELECT DISTINCT c.target_oid, c.load::text
      FROM ONLY {changes} AS c
     WHERE {change_oid} = ANY (%(oids)s)
        OR (c.origin = {origin} AND c.relation_oid = ANY (%(oids)s) AND c.kind <> 'reference')
        OR EXISTS (
               SELECT
                 FROM pg_catalog.pg_partition_ancestors({change_oid}) AS a
                WHERE a.relid = ANY (%(oids)s)
           )
"""

# The loads that may have changed the whole server; these changes are recorded in another database. A place for
# temporary work (until = 'infinity') is left out, because it stays until it is removed.
_HOLDS = """
    SELECT h.holder::text
      FROM ONLY {holds} AS h
     WHERE h.target_oid = 0
       AND h.until IS DISTINCT FROM 'infinity'
"""


@frozen
class LedgerFindings:
    """What concerns a load that is about to begin.

    `running` is the load with the same identity that has begun and not ended, and `next_number` is the number of its
    next object. `is_copied` is whether its oids were recorded in another database. `known` are the objects of any load
    with the same URI and table.

    `changed_by` has the loads whose changes to the tables, their partitions or their parents are not restored yet, by
    the oid of the table that the load filled. `server_holds` are the loads that may have changed settings of the
    server. `renamed` has, by object number, the URI and the load of an object with the same size and version that a
    complete load has loaded into the same table under another name.
    """

    running: str | None
    next_number: int
    is_copied: bool
    known: Sequence[KnownObject]
    changed_by: Mapping[int, Collection[str]]
    server_holds: Sequence[str]
    renamed: Mapping[int, tuple[str, str]]


@frozen
class KnownMeaning:
    """A load's state, and its meaning when it began, as JSON (see loading/plan/identity.py)."""

    state: LoadState
    meaning: str


def look_up(
    connection: Connection, schema: str, identity: str, objects: Sequence[LedgerObject], *, lock: str
) -> LedgerFindings:
    """Return what the ledger has recorded that concerns a load. Raises ServerError, TargetError."""
    with naming_ledger(schema), translate_errors("looking up what has been loaded"), in_pipeline(connection):
        running = connection.execute(compose_query(_RUNNING, schema), {"identity": identity, "lock": lock})
        known = connection.cursor(row_factory=class_row(KnownObject))
        known.execute(compose_query(_KNOWN, schema), object_arrays(objects))
        renamed = connection.execute(compose_query(_RENAMED, schema), object_arrays(objects))
        changes = connection.execute(compose_query(_CHANGED, schema), {"oids": [item.target_oid for item in objects]})
        holds = connection.execute(compose_query(_HOLDS, schema))
    row = running.fetchone()
    changed_by: dict[int, set[str]] = {}
    for oid, load_id in changes.fetchall():
        changed_by.setdefault(oid, set()).add(load_id)
    return LedgerFindings(
        running=None if row is None else str(row[0]),
        next_number=0 if row is None else int(row[1]),
        is_copied=row is not None and row[2],
        known=known.fetchall(),
        changed_by=changed_by,
        server_holds=[holder for (holder,) in holds],
        renamed={number: (uri, load_id) for number, uri, load_id in renamed},
    )


def read_meaning(connection: Connection, schema: str, load_id: str) -> KnownMeaning | None:
    """Return the state and the meaning of a load, or None if it does not exist. Raises ServerError."""
    query = compose_query("SELECT state, meaning::text AS meaning FROM ONLY {loads} WHERE id = %s", schema)
    with translate_errors("looking up the load"):
        return next(iter(fetch_as(connection, KnownMeaning, query, [load_id])), None)


def find_loaded(connection: Connection, schema: str, tables: Sequence[TableName]) -> set[TableName]:
    """Return those of `tables` that a complete load has loaded. Raises ServerError."""
    query = compose_query(
        """
        SELECT w.schema_name, w.table_name
          FROM ROWS FROM (
                   pg_catalog.unnest(%(schemas)s::name[]), pg_catalog.unnest(%(tables)s::name[])
               ) AS w (schema_name, table_name)
         WHERE EXISTS (
                   SELECT
                     FROM ONLY {objects} AS o
                     JOIN ONLY {loads} AS l
                       ON l.id = o.load
                    WHERE o.target_schema = w.schema_name
                      AND o.target_table = w.table_name
                      AND l.state = 'complete'
               )
        """,
        schema,
    )
    names = {"schemas": [table.schema for table in tables], "tables": [table.name for table in tables]}
    with naming_ledger(schema), translate_errors("looking up the tables that were loaded"):
        return {TableName(schema=schema, name=name) for schema, name in connection.execute(query, names)}


def object_arrays(objects: Sequence[LedgerObject]) -> dict[str, Any]:
    """Return objects as arrays for `unnest`, by parameter name."""
    return {
        "numbers": [item.number for item in objects],
        "oids": [item.target_oid for item in objects],
        "schemas": [item.target.schema for item in objects],
        "tables": [item.target.name for item in objects],
        "uris": [item.uri for item in objects],
        "versions": [item.version for item in objects],
        "sizes": [item.size_bytes for item in objects],
        "ctimes": [item.ctime_ns for item in objects],
        "units": [item.unit for item in objects],
    }
