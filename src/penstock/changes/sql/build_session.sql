-- build_session.sql: set up the session for the next index build
-- returns (memory, workers); needs no privilege; PostgreSQL 14+
-- psql -v memory_kb=65536 -v may_lower=true -v workers=0 -f build_session.sql
--
-- A larger maintenance_work_mem is kept unless `may_lower` is true.
SELECT pg_catalog.set_config(
           'maintenance_work_mem',
           greatest(:'memory_kb'::bigint, CASE WHEN NOT :'may_lower' THEN s.reset_val::bigint END) || 'kB',
           false
       ) AS memory,
       pg_catalog.set_config('max_parallel_maintenance_workers', :'workers'::text, false) AS workers
  FROM pg_catalog.pg_settings AS s
 WHERE s.name = 'maintenance_work_mem';
