-- index_builds.sql: running index builds on tables of this database that are larger than maintenance_work_mem
-- returns temp.usage.values.IndexBuild; needs no privilege; PostgreSQL 14+
-- psql -f index_builds.sql
--
-- Sizes are from the last VACUUM or ANALYZE, or counted by the build. pg_relation_size would wait for the build's lock.
SELECT b.pid AS pid,
       b.datname::text AS database,
       CASE WHEN b.datname = pg_catalog.current_database() THEN b.relid::pg_catalog.regclass::text END AS name,
       b.phase AS phase,
       s.table_bytes AS table_bytes
  FROM pg_catalog.pg_stat_progress_create_index AS b
  LEFT JOIN LATERAL (
       SELECT greatest(c.relpages, b.blocks_total) * pg_catalog.current_setting('block_size')::bigint AS table_bytes
         FROM pg_catalog.pg_class AS c
        WHERE c.oid = b.relid
          AND b.datname = pg_catalog.current_database()
 ) AS s ON true
 WHERE s.table_bytes IS NULL
    OR s.table_bytes > pg_catalog.pg_size_bytes(pg_catalog.current_setting('maintenance_work_mem'))
 ORDER BY b.pid;
