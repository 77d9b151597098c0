"""Removes what the ledger does not need any more: details of complete loads, and abandoned staging tables.

What prevents loading an object twice is kept: the object's row, and one row of its committed ranges.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.sql import fetch_as, fetch_one
from penstock.ledger.locks import compose_query, find_workers, try_lock_here
from penstock.ledger.schema import has_ledger
from penstock.ledger.targets import drop_landing, read_landings
from penstock.ledger.values import LeftRejects, LeftStaging, PrunedLoads

# Staging tables of loads that no process is running. Those of other roles are listed, but only their owner may drop
# them. A load that is just reconnecting holds no lock; if its table is dropped, it reads its files again.
_LEFT_STAGING = """
    SELECT l.id::text AS load_id,
           l.lock_key,
           l.owner = CURRENT_USER AS is_own,
           t.number,
           pg_catalog.concat_ws('.', t.landing_schema, t.landing_table) AS "table",
           pg_catalog.pg_total_relation_size(c.oid) AS size_bytes
      FROM ONLY {targets} AS t
      JOIN ONLY {loads} AS l ON l.id = t.load
      JOIN pg_catalog.pg_class AS c ON c.oid = {landing_oid} AND c.relname = t.landing_table
     WHERE t.kind IN ('staging', 'replacement')
       AND (%(age_s)s::float8 IS NULL OR l.changed_at < pg_catalog.now() - pg_catalog.make_interval(secs => %(age_s)s))
       AND NOT EXISTS (
               SELECT
                 FROM pg_catalog.pg_locks AS k
                WHERE k.locktype = 'advisory'
                  AND k.objsubid = 1
                  AND k.pid <> pg_catalog.pg_backend_pid()
                  AND k.classid = ('x' || pg_catalog.substr(l.lock_key, 1, 8))::bit(32)::int8::oid
                  AND k.objid = ('x' || pg_catalog.substr(l.lock_key, 9, 8))::bit(32)::int8::oid
           )
     ORDER BY l.began_at, t.number
"""

# Old complete loads of this role, except loads with rejected records, because these may be retried.
_OLD = """
    SELECT l.id
      FROM ONLY {loads} AS l
     WHERE l.state = 'complete'
       AND l.owner = CURRENT_USER
       AND l.changed_at < pg_catalog.now() - pg_catalog.make_interval(secs => %s)
       AND (
               l.job IS NOT NULL
            OR EXISTS (SELECT FROM ONLY {ranges} AS r WHERE r.load = l.id GROUP BY r.object HAVING count(*) > 1)
           )
       AND NOT EXISTS (SELECT FROM ONLY {rejects} AS r WHERE r.load = l.id)
       FOR UPDATE
"""

_JOIN_RANGES = """
    UPDATE ONLY {ranges} AS r
       SET ranges = s.ranges,
           has_start = s.has_start,
           has_end = s.has_end,
           records = s.records,
           rows = s.rows,
           suppressed = s.suppressed,
           rejected = s.rejected,
           checksum = 0,
           form = NULL,
           member = NULL,
           committed_at = s.committed_at
      FROM (
               SELECT a.load,
                      a.object,
                      min(a.start) AS start,
                      coalesce(
                          (SELECT pg_catalog.range_agg(p.part)
                             FROM ONLY {ranges} AS b, pg_catalog.unnest(b.ranges) AS p (part)
                            WHERE b.load = a.load AND b.object = a.object),
                          '{{}}'
                      ) AS ranges,
                      bool_or(a.has_start) AS has_start,
                      bool_or(a.has_end) AS has_end,
                      sum(a.records) AS records,
                      sum(a.rows) AS rows,
                      sum(a.suppressed) AS suppressed,
                      sum(a.rejected) AS rejected,
                      max(a.committed_at) AS committed_at
                 FROM ONLY {ranges} AS a
                WHERE a.load = ANY (%s)
                GROUP BY a.load, a.object
               HAVING count(*) > 1
           ) AS s
     WHERE r.load = s.load
       AND r.object = s.object
       AND r.start = s.start
"""

_DROP_JOINED = """
    WITH gone AS (
        DELETE FROM ONLY {ranges} AS r
         WHERE r.load = ANY (%s)
           AND EXISTS (
                   SELECT
                     FROM ONLY {ranges} AS b
                    WHERE b.load = r.load
                      AND b.object = r.object
                      AND b.start < r.start
               )
        RETURNING pg_catalog.pg_column_size(r.*) AS size_bytes
    )
    SELECT coalesce(sum(g.size_bytes), 0)::bigint FROM gone AS g
"""

# Deletes the records of how much each process has loaded.
_DROP_MEMBERS = """
    WITH gone AS (
        DELETE FROM ONLY {members} AS m
         WHERE m.load = ANY (%s)
        RETURNING pg_catalog.pg_column_size(m.*) AS size_bytes
    )
    SELECT coalesce(sum(g.size_bytes), 0)::bigint FROM gone AS g
"""

# A role may write only its own login, so the login of another role is set to null.
_DROP_JOB = """
    WITH old AS (
        SELECT l.id, coalesce(pg_catalog.pg_column_size(l.job), 0) + pg_catalog.pg_column_size(l.meaning) AS size_bytes
          FROM ONLY {loads} AS l
         WHERE l.id = ANY (%s)
    ), slim AS (
        UPDATE ONLY {loads} AS l
           SET job = NULL,
               meaning = '{{}}',
               login = CASE WHEN l.login = SESSION_USER THEN l.login END
          FROM old
         WHERE l.id = old.id
        RETURNING old.size_bytes
    )
    SELECT coalesce(sum(s.size_bytes), 0)::bigint FROM slim AS s
"""


def find_left_staging(connection: Connection, schema: str, *, age_s: float | None = None) -> list[LeftStaging]:
    """Return the staging tables of loads that are not running.

    With `age_s`, only loads that have made no progress for this many seconds count. Raises ServerError, TargetError.
    """
    if not has_ledger(connection, schema):
        return []
    with translate_errors("looking for staging tables"):
        return fetch_as(connection, LeftStaging, compose_query(_LEFT_STAGING, schema), {"age_s": age_s})


def drop_left_staging(connection: Connection, schema: str, *, age_s: float | None = None) -> list[LeftStaging]:
    """Drop the staging tables that loads of this role have left, and return them.

    If such a load is resumed, it reads its files again.

    Raises ServerError, TargetError.
    """
    dropped = []
    for left in find_left_staging(connection, schema, age_s=age_s):
        if not left.is_own:
            continue
        with in_transaction(connection, f"dropping staging table {left.table}"):
            # Another process may have just resumed the load.
            if not try_lock_here(connection, left.lock_key) or find_workers(connection, left.load_id):
                continue
            landing = read_landings(connection, schema, left.load_id).get(left.number)
            if landing is not None and drop_landing(connection, schema, landing, load_id=left.load_id):
                dropped.append(left)
    return dropped


def prune_loads(connection: Connection, schema: str, *, age_s: float) -> PrunedLoads:
    """Remove details of this role's loads that have been complete for `age_s` seconds, and staging tables of that age.

    Raises ServerError, TargetError.
    """
    if not has_ledger(connection, schema):
        return PrunedLoads(loads=0, size_bytes=0, staging=())
    with in_transaction(connection, "pruning the ledger"):
        rows = connection.execute(compose_query(_OLD, schema), [age_s]).fetchall()
        old = [load_id for (load_id,) in rows]
        connection.execute(compose_query(_JOIN_RANGES, schema), [old])
        size_bytes = sum(
            int(fetch_one(connection, compose_query(query, schema), [old])[0])
            for query in (_DROP_JOINED, _DROP_MEMBERS, _DROP_JOB)
        )
    staging = drop_left_staging(connection, schema, age_s=age_s)
    return PrunedLoads(loads=len(old), size_bytes=size_bytes, staging=tuple(staging))


def find_left_rejects(
    connection: Connection, schema: str, *, oids: Sequence[int], uris: Sequence[str], but_load: str | None
) -> list[LeftRejects]:
    """Return, by load, how many rejected records of some objects are neither loaded nor discarded.

    The objects are given by the oids of their tables and by their URIs. Only loads of this role are counted. Load
    `but_load` is not. Raises ServerError.
    """
    query = compose_query(
        """
        SELECT o.load::text AS load_id, count(*) AS count
          FROM ONLY {objects} AS o
          JOIN ONLY {rejects} AS r ON r.load = o.load AND r.object = o.number
         WHERE o.uri = ANY (%s)
           AND {object_oid} = ANY (%s::oid[])
           AND o.load IS DISTINCT FROM %s::uuid
         GROUP BY o.load
         ORDER BY o.load
        """,
        schema,
    )
    with translate_errors("looking for rejected records"):
        return fetch_as(connection, LeftRejects, query, [list(uris), list(oids), but_load])
