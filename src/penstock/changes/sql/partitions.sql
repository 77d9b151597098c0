-- partitions.sql: the direct partitions of a table
-- returns changes.tables.rebuild.PartitionRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f partitions.sql
SELECT c.oid,
       n.nspname::text AS schema,
       c.relname::text AS name,
       c.relkind = 'f' AS is_foreign
  FROM pg_catalog.pg_inherits AS h
  JOIN pg_catalog.pg_class AS c ON c.oid = h.inhrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE h.inhparent = :'oid'::oid
   AND c.relispartition
 ORDER BY c.oid;
