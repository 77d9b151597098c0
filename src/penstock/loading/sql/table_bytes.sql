-- table_bytes.sql: the size of tables and their partitions
-- returns (size_bytes); needs no privilege; PostgreSQL 14+
-- psql -v oids='{1247}' -f table_bytes.sql
SELECT coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(each.oid)), 0)::int8 AS size_bytes
  FROM (
           SELECT t.oid FROM pg_catalog.unnest(:'oids'::oid[]) AS t (oid)
           UNION
           SELECT p.relid
             FROM pg_catalog.unnest(:'oids'::oid[]) AS t (oid), pg_catalog.pg_partition_tree(t.oid) AS p
       ) AS each;
