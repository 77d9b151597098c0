-- emptied_since.sql: the last later load that emptied, replaced or synced one of a load's tables, a parent or a partition
-- returns ("table", load_id); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f emptied_since.sql
\set emptying_event `cat parts/emptying_event.sql`
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
  WITH loaded AS MATERIALIZED (
           SELECT DISTINCT o.target_schema, o.target_table, :object_oid AS oid
             FROM ONLY :"ledger".objects AS o
            WHERE o.load = :'load'
       )
SELECT pg_catalog.concat_ws('.', nullif(o.target_schema, ''), o.target_table) AS "table",
       coalesce(l.meaning ->> 'removed', l.id::text) AS load_id
  FROM ONLY :"ledger".loads AS former
  CROSS JOIN loaded AS o
  JOIN ONLY :"ledger".targets AS t ON t.load <> former.id
  JOIN ONLY :"ledger".loads AS l ON l.id = t.load
 WHERE former.id = :'load'
   AND coalesce(
           :emptying_event,
           CASE
               -- Of a pruned load, only the modes are left.
               WHEN l.state = 'complete'
                AND 'sync' IN (l.meaning -> 'targets' -> t.number ->> 'mode', l.meaning -> 'modes' ->> t.number)
               THEN l.event
           END
       ) > former.event
   AND (
           (t.target_schema = o.target_schema AND t.target_table = o.target_table)
        OR :target_oid = o.oid
        OR :target_oid IN (SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(o.oid) AS a)
           -- A new partition took nothing away. Only its load has mode append, and has put a table in place.
        OR (
               :target_oid IN (SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(o.oid) AS p)
           AND coalesce(l.meaning -> 'targets' -> t.number ->> 'mode', l.meaning -> 'modes' ->> t.number)
               IS DISTINCT FROM 'append'
           )
       )
 ORDER BY l.event DESC
 LIMIT 1;
