-- server_pages.pg18.sql: what the server has read and written, and the pages of some tables with their partitions
-- returns loading.steps.pages.ServerPages; needs no privilege; PostgreSQL 18+
-- psql -v oids={1259} -f server_pages.pg18.sql
--
-- Extends are not counted as written, because extending a relation allocates pages and mostly writes none.
SELECT i.read_bytes,
       i.written_bytes,
       w.wal_bytes::int8 AS wal_bytes,
       COALESCE(t.pages, 0) AS pages,
       COALESCE(t.frozen_pages, 0) AS frozen_pages,
       GREATEST(i.reset_at, w.stats_reset) AS reset_at
  FROM pg_catalog.pg_stat_wal AS w
  CROSS JOIN (
      SELECT pg_catalog.sum(s.read_bytes)::int8 AS read_bytes,
             pg_catalog.sum(s.write_bytes)::int8 AS written_bytes,
             pg_catalog.max(s.stats_reset) AS reset_at
        FROM pg_catalog.pg_stat_io AS s
       WHERE s.object = 'relation'
  ) AS i
  CROSS JOIN (
      SELECT pg_catalog.sum(GREATEST(c.relpages, 0))::int8 AS pages,
             pg_catalog.sum(c.relallfrozen)::int8 AS frozen_pages
        FROM (
            SELECT r.oid
              FROM pg_catalog.unnest(:'oids'::oid[]) AS r (oid)
            UNION
            SELECT p.relid::oid
              FROM pg_catalog.unnest(:'oids'::oid[]) AS r (oid)
             CROSS JOIN LATERAL pg_catalog.pg_partition_tree(r.oid) AS p
        ) AS t
        JOIN pg_catalog.pg_class AS c ON c.oid = t.oid AND c.relkind = 'r'
  ) AS t;
