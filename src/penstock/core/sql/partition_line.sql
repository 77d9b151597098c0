-- partition_line.sql: tables, their partitions, and the tables whose partitions they are
-- returns (oid, schema, name); needs no privilege; PostgreSQL 14+
-- psql -v oids={1259} -f partition_line.sql
SELECT c.oid::bigint AS oid,
       n.nspname::text AS schema,
       c.relname::text AS name
  FROM (
           SELECT DISTINCT line.oid
             FROM pg_catalog.unnest(:'oids'::oid[]) AS o (id)
            CROSS JOIN LATERAL (
                  SELECT o.id
                  UNION
                  SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(o.id) AS p
                  UNION
                  SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(o.id) AS a
              ) AS line (oid)
       ) AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 ORDER BY c.oid;
