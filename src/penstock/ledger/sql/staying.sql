-- staying.sql: how many rows of a load may still be in each table
-- returns ledger.values.StayingRows; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f staying.sql
--
-- Records that row triggers skipped count too: the triggers may have stored them elsewhere. Rows of a dropped table, or
-- of a table that a later load has truncated, do not count. Staged rows are in the table once they are merged. Rows of
-- a replacing table are in the table once the load is complete.
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
SELECT pg_catalog.concat_ws('.', nullif(s.schema, ''), s."table") AS "table",
       pg_catalog.sum(s.rows)::int8 AS rows,
       pg_catalog.sum(s.suppressed)::int8 AS suppressed
  FROM (
           SELECT :object_oid AS oid, o.target_schema AS schema, o.target_table AS "table", r.rows, r.suppressed
             FROM ONLY :"ledger".objects AS o
             JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
             JOIN ONLY :"ledger".loads AS l ON l.id = o.load
            WHERE o.load = :'load'
              AND NOT EXISTS (
                      SELECT
                        FROM ONLY :"ledger".targets AS t
                       WHERE t.load = o.load
                         AND t.target_oid = o.target_oid
                         AND (t.kind = 'staging' OR (t.kind = 'replacement' AND l.state = 'running'))
                  )
           UNION ALL
           SELECT :target_oid, t.target_schema, t.target_table, t.inserted + t.updated, t.suppressed
             FROM ONLY :"ledger".targets AS t
            WHERE t.load = :'load'
              AND t.kind = 'staging'
       ) AS s
 WHERE EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = s.oid)
   AND NOT EXISTS (
           SELECT
             FROM ONLY :"ledger".targets AS t
             JOIN ONLY :"ledger".loads AS l ON l.id = :'load'
            WHERE :target_oid = s.oid
              AND t.load <> l.id
              AND t.truncated_at > l.changed_at
              AND l.state = 'complete'
       )
 GROUP BY 1
HAVING pg_catalog.sum(s.rows) > 0
    OR pg_catalog.sum(s.suppressed) > 0
 ORDER BY 1;
