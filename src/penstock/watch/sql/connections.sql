-- connections.sql: client backends by application and user, the largest groups first, except this session
-- returns (counters); needs pg_read_all_stats to see which are idle; PostgreSQL 14+
-- psql -f connections.sql
--
-- Without pg_read_all_stats, the type and the state of other sessions are null, and so is idle_of_all.
SELECT pg_catalog.jsonb_build_object(
           'application', a.application_name,
           'user', a.usename,
           'connections', pg_catalog.count(*),
           'idle', pg_catalog.count(*) FILTER (WHERE a.state = 'idle'),
           -- Clients on the server's machine use its processors.
           'local_of_all', pg_catalog.sum(
               pg_catalog.count(*) FILTER (
                   WHERE a.client_addr IS NULL OR a.client_addr <<= '127.0.0.0/8' OR a.client_addr = '::1'
               )
           ) OVER (),
           'of_all', pg_catalog.sum(pg_catalog.count(*)) OVER (),
           'idle_of_all', CASE
               WHEN pg_catalog.bool_and(pg_catalog.bool_and(a.backend_type IS NOT NULL)) OVER ()
               THEN pg_catalog.sum(pg_catalog.count(*) FILTER (WHERE a.state = 'idle')) OVER ()
           END
       ) AS counters
  FROM pg_catalog.pg_stat_activity AS a
 WHERE a.pid <> pg_catalog.pg_backend_pid()
   AND (
           a.backend_type = 'client backend'
           OR (a.backend_type IS NULL AND a.datname IS NOT NULL)
       )
 GROUP BY a.application_name, a.usename
 ORDER BY pg_catalog.count(*) DESC
 LIMIT 20;
