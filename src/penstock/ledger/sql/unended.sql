-- unended.sql: the other loads that have not ended, and have rows in a table, its partitions or its parents
-- returns (load_id); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v oid=1247 -f unended.sql
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
SELECT l.id::text AS load_id
  FROM ONLY :"ledger".loads AS l
 WHERE l.state = 'running'
   AND l.id <> :'load'
   AND EXISTS (
           SELECT
             FROM ONLY :"ledger".objects AS o
             JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
            WHERE o.load = l.id
              AND :object_oid IN (
                      SELECT :'oid'::oid
                       UNION ALL
                      SELECT t.relid::oid FROM pg_catalog.pg_partition_tree(:'oid') AS t
                       UNION ALL
                      SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(:'oid') AS a
                  )
              AND NOT EXISTS (
                      SELECT
                        FROM ONLY :"ledger".targets AS t
                       WHERE t.load = l.id
                         AND t.target_oid = o.target_oid
                         AND t.kind IS NOT NULL
                  )
       )
 ORDER BY l.began_at;
