-- autovacuum.sql: the storage parameters of a table and of its partitions, and of their TOAST tables
-- returns changes.tables.kinds.OptionsRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f autovacuum.sql
--
-- A partitioned table has no autovacuum options of its own: autovacuum processes its partitions.
WITH tree AS (
    SELECT :'oid'::oid AS oid
    UNION
    SELECT p.relid::oid
      FROM pg_catalog.pg_partition_tree(:'oid'::oid::regclass) AS p
)
SELECT c.oid AS relation_oid,
       COALESCE(c.reloptions, '{}') AS options,
       o.oid IS NOT NULL AS has_toast,
       COALESCE(o.reloptions, '{}') AS toast_options
  FROM tree AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.oid
  LEFT JOIN pg_catalog.pg_class AS o ON o.oid = c.reltoastrelid
 WHERE c.relkind = 'r'
 ORDER BY c.oid;
