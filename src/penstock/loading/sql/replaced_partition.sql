-- replaced_partition.sql: a partition, as far as a new table in its place must be attached as it is
-- returns loading.land.leaf.ReplacedPartition; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f replaced_partition.sql
--
-- Needs penstock's own search_path, so that names are qualified. `triggers` are those that ATTACH makes. Since PostgreSQL
-- 17 the identity columns of the parent are identity columns of its partitions, with the sequence of the tree's root.
\set identity_defaults `cat parts/identity_defaults.sql`
SELECT h.inhparent AS parent_oid,
       h.inhparent::regclass::text AS parent,
       k.partdefid = c.oid AS is_default,
       NULLIF(k.partdefid, 0) AS default_oid,
       h.inhdetachpending AS is_detaching,
       pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bounds,
       pg_catalog.pg_get_partition_constraintdef(c.oid) AS condition,
       :identity_defaults AS defaults,
       ARRAY(
           SELECT pg_catalog.pg_get_triggerdef(g.oid)
             FROM pg_catalog.pg_trigger AS g
            WHERE g.tgrelid = c.oid
              AND g.tgparentid <> 0
              AND NOT g.tgisinternal
            ORDER BY 1
       ) AS triggers
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_inherits AS h ON h.inhrelid = c.oid
  JOIN pg_catalog.pg_partitioned_table AS k ON k.partrelid = h.inhparent
 WHERE c.oid = :'oid'::oid;
