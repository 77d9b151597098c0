-- loads_of_table.sql: the loads with objects of a table, in the order in which they ended, those that have not ended last
-- returns proof.values.FillingLoad; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v oid=1259 -f loads_of_table.sql
\set has_sources `cat ../../ledger/sql/parts/has_sources.sql`
\set object_oid `cat ../../ledger/sql/parts/object_oid.sql`
\set origin `cat ../../ledger/sql/parts/origin.sql`
SELECT l.id::text AS load_id,
       l.state = 'complete' AS is_complete,
       coalesce(:has_sources, false) AS has_job,
       coalesce(
           (
               SELECT pg_catalog.bool_or(
                          coalesce(t.meaning ->> 'mode', 'upsert') IN ('upsert', 'sync')
                          OR t.meaning ->> 'transform' <> 'false'
                      )
                 FROM pg_catalog.jsonb_array_elements(l.meaning -> 'targets') AS t (meaning)
           ),
           true
       ) AS updates,
       EXISTS (
           SELECT
             FROM ONLY :"ledger".objects AS o
             JOIN ONLY :"ledger".objects AS p ON p.uri = o.uri AND p.load <> o.load
            WHERE o.load = l.id
              AND :object_oid = :'oid'
              AND (p.version, p.size_bytes, p.ctime_ns) IS DISTINCT FROM (o.version, o.size_bytes, o.ctime_ns)
       ) AS has_versions
  FROM ONLY :"ledger".loads AS l
 WHERE EXISTS (
           SELECT
             FROM ONLY :"ledger".objects AS o
            WHERE o.load = l.id
              AND :object_oid = :'oid'
       )
 ORDER BY l.state = 'running', l.event;
