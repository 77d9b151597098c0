-- proof_tables.sql: what the ledger says of each table of a complete load
-- returns (schema, name, oid, kind, names, hides_rows, objects, records, inserted, updated, rejected, suppressed,
-- duplicates, existing, is_emptied, is_created, is_shared, has_relatives, has_parts, is_gone, is_gone_in_part,
-- floor, floor_of_all); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f proof_tables.sql
--
-- `related` are the tables whose loads matter: the load's tables, their partitions (`is_part`), and their parents. `done`
-- has a row for each load and related table, also for a load that was removed after it had truncated the table. `touched`
-- records are rows of the table when the load has ended. A retry may have stored a record whose key the load itself had
-- stored, so retried records do not count. The event `removing` is that with which the load emptied the table, or with
-- which a sync ended; its deletes were before that. A merge whose details were pruned may have been a sync, and its rows
-- do not count. An unended sync that has merged may have deleted any row: its event is the greatest number. A partition
-- that was made aside (`is_new`) took no rows away.
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
WITH own AS MATERIALIZED (
    SELECT :object_oid AS oid,
           min(o.target_schema::text) AS schema,
           min(o.target_table::text) AS name,
           pg_catalog.array_agg(DISTINCT o.number) AS objects,
           coalesce(pg_catalog.sum(r.records), 0)::int8 AS records,
           coalesce(pg_catalog.sum(r.rows), 0)::int8 AS rows,
           coalesce(pg_catalog.sum(r.rejected), 0)::int8 AS rejected,
           coalesce(pg_catalog.sum(r.suppressed), 0)::int8 AS suppressed
      FROM ONLY :"ledger".objects AS o
      LEFT JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
     WHERE o.load = :'load'
     GROUP BY 1
), related AS MATERIALIZED (
    SELECT own.oid AS root, own.oid, true AS is_part FROM own
     UNION
    SELECT own.oid, t.relid, true FROM own, pg_catalog.pg_partition_tree(own.oid) AS t
     UNION
    SELECT own.oid, a.relid, false FROM own, pg_catalog.pg_partition_ancestors(own.oid) AS a WHERE a.relid <> own.oid
), sent AS MATERIALIZED (
    SELECT o.load,
           :object_oid AS oid,
           coalesce(pg_catalog.sum(r.rows), 0)::int8 AS rows,
           coalesce(pg_catalog.sum(r.rows) FILTER (WHERE r.start < 0 AND r.rows > 0), 0)::int8 AS retried
      FROM ONLY :"ledger".objects AS o
      LEFT JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
     WHERE :object_oid IN (SELECT related.oid FROM related)
     GROUP BY 1, 2
), landed AS MATERIALIZED (
    SELECT t.load,
           :target_oid AS oid,
           pg_catalog.bool_or(t.kind = 'staging') AS is_staged,
           pg_catalog.bool_or(t.truncated_at IS NOT NULL OR t.kind = 'replacement') AS is_emptied,
           pg_catalog.bool_or(
               t.kind = 'staging' AND t.staged > 0
               AND coalesce(m.meaning ->> 'mode', l.meaning -> 'modes' ->> t.number, 'sync') = 'sync'
               AND coalesce(l.job -> 'targets' -> t.number ->> 'sync_delete', 'delete') = 'delete'
           ) AS has_synced,
           max(t.truncation_event) AS truncation_event,
           pg_catalog.bool_or(t.kind = 'replacement') AS is_replaced,
           pg_catalog.bool_or(
               t.kind = 'replacement'
               AND coalesce(m.meaning ->> 'mode', l.meaning -> 'modes' ->> t.number) = 'append'
           ) AS is_new,
           pg_catalog.sum(t.inserted)::int8 AS inserted,
           pg_catalog.sum(t.updated)::int8 AS updated,
           coalesce(pg_catalog.sum(t.inserted) FILTER (WHERE m.is_merge), 0)::int8 AS stored,
           max(t.inserted + t.updated + t.existing) FILTER (WHERE m.is_merge) AS touched,
           pg_catalog.sum(t.duplicates)::int8 AS duplicates,
           pg_catalog.sum(t.existing)::int8 AS existing,
           pg_catalog.sum(t.suppressed)::int8 AS suppressed
      FROM ONLY :"ledger".targets AS t
      JOIN ONLY :"ledger".loads AS l ON l.id = t.load
      CROSS JOIN LATERAL (
               SELECT g.meaning, t.kind = 'staging' AND g.meaning ->> 'transform' = 'false' AS is_merge
                 FROM (SELECT l.meaning -> 'targets' -> t.number AS meaning) AS g
           ) AS m
     WHERE :target_oid IN (SELECT related.oid FROM related)
     GROUP BY 1, 2
), done AS MATERIALIZED (
    SELECT l.id AS load,
           coalesce(s.oid, t.oid) AS oid,
           l.state,
           l.event,
           s.load IS NOT NULL AS has_objects,
           coalesce(s.retried, 0) AS retried,
           e.begin_event,
           CASE
               WHEN t.is_staged THEN t.stored
               WHEN t.is_replaced AND l.state <> 'complete' THEN 0
               ELSE coalesce(s.rows, 0)
           END AS stored,
           coalesce(t.touched - s.retried, 0) AS touched,
           coalesce(t.is_new, false) AS is_new,
           greatest(
               t.truncation_event,
               CASE WHEN t.is_replaced AND l.state = 'complete' THEN l.event END,
               CASE WHEN t.has_synced THEN CASE l.state WHEN 'complete' THEN l.event ELSE 9223372036854775807 END END
           ) AS removing
      FROM sent AS s
      FULL JOIN landed AS t ON t.load = s.load AND t.oid = s.oid
      JOIN ONLY :"ledger".loads AS l ON l.id = coalesce(s.load, t.load)
      CROSS JOIN LATERAL (
               SELECT coalesce(
                          l.begin_event,
                          CASE WHEN l.state = 'running' THEN l.event END
                      ) AS begin_event
           ) AS e
), removed AS MATERIALIZED (
    SELECT r.root, max(d.removing) AS event
      FROM related AS r
      JOIN done AS d ON d.oid = r.oid AND NOT d.is_new
     GROUP BY r.root
)
SELECT coalesce(n.nspname, own.schema)::text AS schema,
       coalesce(c.relname, own.name)::text AS name,
       coalesce(c.oid, 0)::int8 AS oid,
       c.relkind::text AS kind,
       ARRAY[pg_catalog.concat_ws('.', nullif(own.schema, ''), own.name), own.name] AS names,
       coalesce(pg_catalog.row_security_active(c.oid), false) AS hides_rows,
       own.objects,
       own.records,
       CASE WHEN t.is_staged THEN t.inserted ELSE own.rows END AS inserted,
       coalesce(t.updated, 0) AS updated,
       own.rejected,
       own.suppressed + coalesce(t.suppressed, 0) AS suppressed,
       coalesce(t.duplicates, 0) AS duplicates,
       coalesce(t.existing, 0) AS existing,
       coalesce(t.is_emptied, false) AS is_emptied,
       pg_catalog.concat_ws('.', own.schema, own.name) = ANY (l.created) AS is_created,
       EXISTS (
           SELECT
             FROM related AS r
             JOIN done AS d ON d.oid = r.oid
            WHERE r.root = c.oid
              AND (d.load <> l.id OR d.oid <> c.oid)
              AND CASE
                      WHEN d.load = l.id THEN d.has_objects
                      ELSE d.has_objects AND (d.state = 'running' OR d.retried > 0 OR d.event > f.event)
                  END
       ) AS is_shared,
       EXISTS (
           SELECT
             FROM related AS r
             JOIN done AS d ON d.oid = r.oid
            WHERE r.root = c.oid
              AND d.oid <> c.oid
              AND d.has_objects
       ) AS has_relatives,
       EXISTS (
           SELECT
             FROM related AS r
             JOIN done AS d ON d.oid = r.oid
            WHERE r.root = c.oid
              AND r.is_part
              AND d.oid <> c.oid
              AND d.has_objects
              AND d.event > coalesce(
                      (SELECT max(e.removing) FROM done AS e WHERE e.oid = c.oid AND NOT e.is_new), 0
                  )
       ) AS has_parts,
       c.oid IS NULL
       OR EXISTS (
           SELECT
             FROM related AS r
             JOIN done AS d ON d.oid = r.oid
            WHERE r.root = c.oid
              AND d.load <> l.id
              AND d.removing > g.event
              AND NOT d.is_new
       ) AS is_gone,
       coalesce(
           (
               SELECT pg_catalog.bool_and(r.is_part AND r.oid <> c.oid)
                 FROM related AS r
                 JOIN done AS d ON d.oid = r.oid
                WHERE r.root = c.oid
                  AND d.load <> l.id
                  AND d.removing > g.event
                  AND NOT d.is_new
           ),
           false
       ) AS is_gone_in_part,
       greatest(m.stored, m.touched) AS floor,
       CASE
           WHEN x.event IS DISTINCT FROM 9223372036854775807 THEN (
               SELECT coalesce(max(greatest(d.stored, d.touched)) FILTER (WHERE d.removing = x.event), 0)
                      + coalesce(
                            pg_catalog.sum(d.stored) FILTER (WHERE x.event IS NULL OR d.begin_event > x.event), 0
                        )
                 FROM related AS r
                 JOIN done AS d ON d.oid = r.oid
                WHERE r.root = c.oid
                  AND r.is_part
           )
       END::int8 AS floor_of_all
  FROM ONLY :"ledger".loads AS l
  CROSS JOIN own
  LEFT JOIN pg_catalog.pg_class AS c ON c.oid = own.oid
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN landed AS t ON t.load = l.id AND t.oid = c.oid
  LEFT JOIN done AS m ON m.load = l.id AND m.oid = c.oid
  LEFT JOIN removed AS x ON x.root = c.oid
  CROSS JOIN LATERAL (SELECT greatest(m.removing, coalesce(m.begin_event, l.event)) AS event) AS f
  -- Staged rows are in the table when the load ends.
  CROSS JOIN LATERAL (SELECT CASE WHEN t.is_staged THEN l.event ELSE f.event END AS event) AS g
 WHERE l.id = :'load'
 ORDER BY 1, 2;
