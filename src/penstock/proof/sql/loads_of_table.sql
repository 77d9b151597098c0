-- loads_of_table.sql: the loads with objects of a table, in the order in which they began
-- returns proof.values.FillingLoad; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v oid=1259 -f loads_of_table.sql
\set object_oid `cat ../../ledger/sql/parts/object_oid.sql`
\set origin `cat ../../ledger/sql/parts/origin.sql`
SELECT l.id::text AS load_id,
       l.state = 'complete' AS is_complete,
       l.job IS NOT NULL AS has_job
  FROM ONLY :"ledger".loads AS l
 WHERE EXISTS (
           SELECT
             FROM ONLY :"ledger".objects AS o
            WHERE o.load = l.id
              AND :object_oid = :'oid'
       )
 ORDER BY coalesce(l.begin_event, l.event);
