-- partition_columns.sql: the columns by which a partitioned table and its partitioned partitions are divided
-- returns loading.land.merge_key.PartitionColumn; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f partition_columns.sql
--
-- The name of an expression is null. A unique index of the table needs all these columns.
SELECT a.attname::text AS name
  FROM pg_catalog.pg_partition_tree(:'oid'::regclass) AS t
  JOIN pg_catalog.pg_partitioned_table AS p ON p.partrelid = t.relid
 CROSS JOIN LATERAL pg_catalog.generate_series(0, p.partnatts - 1) AS k (position)
  LEFT JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid = p.partrelid
   AND a.attnum = p.partattrs[k.position]
   AND a.attnum <> 0
 ORDER BY t.level,
          p.partrelid,
          k.position;
