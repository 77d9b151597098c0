-- foreign_keys_to.sql: the foreign keys by which deleting rows of a table is refused, or changes other rows
-- returns loading.land.sync.ForeignKeyRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f foreign_keys_to.sql
--
-- The keys that refer to the table, to its partitions or to its parents; and those that refer to a table from which ON
-- DELETE CASCADE deletes. The copies that partitions have of a key are not returned. A key that is NOT ENFORCED
-- (PostgreSQL 18) does nothing.
WITH RECURSIVE enforced AS (
    SELECT k.*
      FROM pg_catalog.pg_constraint AS k
     WHERE k.contype = 'f'
       AND k.conparentid = 0
       AND COALESCE((pg_catalog.to_jsonb(k) ->> 'conenforced')::bool, true)
),
reached AS (
    SELECT :'oid'::oid AS oid,
           true AS is_root
    UNION
    SELECT k.conrelid,
           false
      FROM reached AS r
     CROSS JOIN LATERAL (
           SELECT r.oid
           UNION
           SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(r.oid) AS p
           UNION
           SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(r.oid) AS a
       ) AS line (oid)
      JOIN enforced AS k ON k.confrelid = line.oid
     WHERE k.confdeltype = 'c'
)
SELECT k.conname::text AS name,
       k.confdeltype::text AS action,
       pg_catalog.bool_or(r.is_root) AS is_direct,
       k.conrelid AS oid,
       n1.nspname::text AS schema,
       c1.relname::text AS table,
       ARRAY(
           SELECT c1.oid
           UNION
           SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(c1.oid) AS p
           UNION
           SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(c1.oid) AS a
       )::int8[] AS line
  FROM reached AS r
 CROSS JOIN LATERAL (
       SELECT r.oid
       UNION
       SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(r.oid) AS p
       UNION
       SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(r.oid) AS a
   ) AS line (oid)
  JOIN enforced AS k ON k.confrelid = line.oid
  JOIN pg_catalog.pg_class AS c1 ON c1.oid = k.conrelid
  JOIN pg_catalog.pg_namespace AS n1 ON n1.oid = c1.relnamespace
 GROUP BY k.oid,
          k.conname,
          k.confdeltype,
          k.conrelid,
          c1.oid,
          c1.relname,
          n1.nspname
 ORDER BY n1.nspname,
          c1.relname,
          k.conname;
