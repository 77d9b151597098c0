-- references.sql: the tables that the foreign keys of a table and its partitions refer to, possibly the table itself
-- returns core.catalogue.catalog.ReferenceRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f references.sql
SELECT DISTINCT k.confrelid AS oid
  FROM pg_catalog.pg_constraint AS k
 WHERE k.contype = 'f'
   AND (
           k.conrelid = :'oid'::oid
           OR k.conrelid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(:'oid'::oid::regclass) AS p)
       );
