-- build_session.pg15.sql: set up the session for the next index build
-- returns (memory, workers, wal_compression); needs no privilege; PostgreSQL 15+
-- psql -v memory_kb=65536 -v may_lower=true -v workers=0 -f build_session.pg15.sql
--
-- A larger maintenance_work_mem is kept unless `may_lower` is true. The full pages that an index build writes to the
-- WAL are compressed if the server can do so by lz4, compresses nothing, and allows the role to set it. pglz costs more
-- time than it saves.
SELECT pg_catalog.set_config(
           'maintenance_work_mem',
           greatest(:'memory_kb'::bigint, CASE WHEN NOT :'may_lower' THEN s.reset_val::bigint END) || 'kB',
           false
       ) AS memory,
       pg_catalog.set_config('max_parallel_maintenance_workers', :'workers'::text, false) AS workers,
       (
           SELECT pg_catalog.set_config('wal_compression', 'lz4', false)
             FROM pg_catalog.pg_settings AS c
            WHERE c.name = 'wal_compression'
              AND c.setting = 'off'
              AND 'lz4' = ANY (c.enumvals)
              AND pg_catalog.has_parameter_privilege('wal_compression', 'SET')
       ) AS wal_compression
  FROM pg_catalog.pg_settings AS s
 WHERE s.name = 'maintenance_work_mem';
