-- foreign_partitions.sql: the partitions of a table that are foreign tables
-- returns core.values.table.TableName; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f foreign_partitions.sql
SELECT n.nspname::text AS schema,
       c.relname::text AS name
  FROM pg_catalog.pg_partition_tree(:'oid'::oid::regclass) AS p
  JOIN pg_catalog.pg_class AS c ON c.oid = p.relid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.relkind = 'f'
 ORDER BY n.nspname,
          c.relname;
