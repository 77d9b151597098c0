-- emptiness.sql: what shows whether a relation is empty
-- returns (schema, name, is_table, can_select, tree_bytes, own_bytes); needs no privilege; PostgreSQL 14+
-- psql -v oid=1247 -f emptiness.sql
SELECT n.nspname AS schema,
       c.relname AS name,
       c.relkind IN ('r', 'p') AS is_table,
       pg_catalog.has_table_privilege(c.oid, 'SELECT') AND NOT pg_catalog.row_security_active(c.oid) AS can_select,
       (
           SELECT sum(pg_catalog.pg_relation_size(p.relid))
             FROM pg_catalog.pg_partition_tree(c.oid) AS p
       ) AS tree_bytes,
       pg_catalog.pg_relation_size(c.oid) AS own_bytes
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = :'oid';
