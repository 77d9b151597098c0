-- truncate_referencing.sql: the foreign keys of other tables that refer to a table or to one of its partitions
-- returns loading.land.context.ReferencingRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v together='{1259}' -f truncate_referencing.sql
--
-- Keys of tables that the same TRUNCATE names (together) are not returned. TRUNCATE refuses a referenced table even if
-- it is empty (heap_truncate_check_FKs in src/backend/catalog/heap.c).
WITH tree AS (
    SELECT :'oid'::oid AS relid
    UNION
    SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(:'oid'::oid::regclass) AS p
),
together AS (
    SELECT t.oid AS relid
      FROM pg_catalog.unnest(:'together'::oid[]) AS t (oid)
    UNION
    SELECT p.relid::oid
      FROM pg_catalog.unnest(:'together'::oid[]) AS t (oid),
           pg_catalog.pg_partition_tree(t.oid::regclass) AS p
)
SELECT DISTINCT k.conname::text AS name,
       n.nspname::text AS schema,
       c.relname::text AS "table"
  FROM pg_catalog.pg_constraint AS k
  JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE k.contype = 'f'
   AND k.confrelid IN (SELECT t.relid FROM tree AS t)
   AND k.conrelid NOT IN (SELECT t.relid FROM tree AS t)
   AND k.conrelid NOT IN (SELECT t.relid FROM together AS t)
 ORDER BY 2, 3, 1;
