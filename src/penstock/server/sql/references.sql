-- references.sql: the tables that a table's foreign keys, or its partitions', refer to, itself included
-- returns table.conflicts.ReferenceRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f references.sql
SELECT DISTINCT k.confrelid AS oid
  FROM pg_catalog.pg_constraint AS k
 WHERE k.contype = 'f'
   AND (
           k.conrelid = :'oid'::oid
           OR k.conrelid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(:'oid'::oid::regclass) AS p)
       );
