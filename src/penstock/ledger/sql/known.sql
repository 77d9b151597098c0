-- known.sql: the ledger's records of objects that are to be loaded
-- returns ledger.values.KnownObject; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v oids='{1247}' -v uris='{/a.csv}' -f known.sql
--
-- A table that a load has replaced has no rows of earlier loads, as after a TRUNCATE. Oids are compared by IS NOT
-- DISTINCT FROM, so that the planner does not hash the whole table by the expression of the oid.
\set emptying_event `cat parts/emptying_event.sql`
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
  WITH emptied AS MATERIALIZED (
           SELECT :target_oid AS oid, max(:emptying_event) AS event
             FROM ONLY :"ledger".targets AS t
             JOIN ONLY :"ledger".loads AS l ON l.id = t.load
            WHERE :emptying_event IS NOT NULL
            GROUP BY 1
       )
SELECT o.load::text AS load_id, l.identity, l.state, o.number, w.oid AS target_oid, o.uri, o.version, (
           SELECT coalesce(sum(r.rows), 0)::int8
             FROM ONLY :"ledger".ranges AS r
            WHERE r.load = o.load
              AND r.object = o.number
              AND NOT (
                      -- The records were staged, and no row was stored: a transform may filter out all records.
                      SELECT coalesce(bool_and(t.inserted + t.updated + t.existing = 0), false)
                        FROM ONLY :"ledger".targets AS t
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
  FROM ROWS FROM (unnest(:'oids'::oid[]), unnest(:'uris'::text[])) AS w (oid, uri)
  JOIN ONLY :"ledger".objects AS o
    ON o.uri = w.uri
   AND :object_oid IS NOT DISTINCT FROM w.oid
  JOIN ONLY :"ledger".loads AS l
    ON l.id = o.load
 ORDER BY l.changed_at;
