-- partition_parent.sql: a partitioned table, as far as a new partition of it must be like it
-- returns loading.land.partition.ParentRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f partition_parent.sql
--
-- Needs penstock's own search_path, so that names are qualified. `own_bounds` are those of a parent that is a partition
-- itself. Before PostgreSQL 17 a partitioned table has no access method. The sequence of an identity column belongs to
-- the root of the tree.
\set identity_defaults `cat parts/identity_defaults.sql`
SELECT c.oid,
       n.nspname::text AS schema,
       c.relname::text AS name,
       pg_catalog.pg_get_partkeydef(c.oid) AS key,
       pg_catalog.pg_get_partition_constraintdef(c.oid) AS own_bounds,
       COALESCE(m.amname, '')::text AS access_method,
       COALESCE(s.spcname, '')::text AS tablespace,
       ARRAY(
           SELECT p.relname::text
             FROM pg_catalog.pg_inherits AS h
             JOIN pg_catalog.pg_class AS p ON p.oid = h.inhrelid
            WHERE h.inhparent = c.oid
              AND p.oid <> k.partdefid
            ORDER BY p.relname, p.oid
       ) AS partitions,
       ARRAY(
           SELECT pg_catalog.pg_get_expr(p.relpartbound, p.oid)
             FROM pg_catalog.pg_inherits AS h
             JOIN pg_catalog.pg_class AS p ON p.oid = h.inhrelid
            WHERE h.inhparent = c.oid
              AND p.oid <> k.partdefid
            ORDER BY p.relname, p.oid
       ) AS bounds,
       NULLIF(k.partdefid, 0) AS default_oid,
       NULLIF(k.partdefid, 0)::regclass::text AS default_partition,
       :identity_defaults AS defaults
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_partitioned_table AS k ON k.partrelid = c.oid
  LEFT JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
  LEFT JOIN pg_catalog.pg_tablespace AS s ON s.oid = c.reltablespace
 WHERE c.oid = :'oid'::oid;
