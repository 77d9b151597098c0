-- temp_index_builds.sql: indexes that are built now on tables larger than maintenance_work_mem (in other databases: not known)
-- returns model.temp.usage.IndexBuild; needs no privilege; PostgreSQL 14+
-- psql -f temp_index_builds.sql
SELECT b.pid AS pid,
       b.datname::text AS database,
       CASE WHEN b.datname = pg_catalog.current_database() THEN b.relid::pg_catalog.regclass::text END AS name,
       b.phase AS phase,
       s.table_bytes AS table_bytes
  FROM pg_catalog.pg_stat_progress_create_index AS b
 CROSS JOIN LATERAL (
       SELECT CASE WHEN b.datname = pg_catalog.current_database()
                   THEN pg_catalog.pg_relation_size(b.relid) END AS table_bytes
 ) AS s
 WHERE s.table_bytes IS NULL
    OR s.table_bytes > pg_catalog.pg_size_bytes(pg_catalog.current_setting('maintenance_work_mem'))
 ORDER BY b.pid;
