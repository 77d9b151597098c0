-- sessions.sql: backends that are active, in a transaction, or block another backend, except this session
-- returns watch.values.SessionSample; needs pg_read_all_stats to see other sessions' activity; PostgreSQL 14+
-- psql -f sessions.sql
--
-- Without pg_read_all_stats, the state of other sessions is null. pg_blocking_pids locks every partition of the lock
-- table, so it is called only for sessions that wait for a lock. An idle session can block others by an advisory lock.
WITH waiting AS MATERIALIZED (
    SELECT w.pid,
           pg_catalog.pg_blocking_pids(w.pid) AS blocked_by
      FROM pg_catalog.pg_stat_get_activity(NULL) AS w
     WHERE w.wait_event_type = 'Lock'
)
SELECT a.pid,
       a.backend_type,
       a.leader_pid,
       a.datname::text AS database,
       a.usename::text AS "user",
       a.application_name AS application,
       a.state,
       a.wait_event_type,
       a.wait_event,
       a.query_id,
       CASE WHEN a.backend_type IS NOT NULL THEN a.query END AS query,
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.query_start) AS query_s,
       pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start) AS transaction_s,
       pg_catalog.age(a.backend_xid) AS xid_age,
       CASE
           WHEN a.wait_event_type = 'Lock' THEN coalesce(w.blocked_by, '{}')
           ELSE '{}'::int[]
       END AS blocked_by,
       NULL::float8 AS cpu_s
  FROM pg_catalog.pg_stat_activity AS a
  LEFT JOIN waiting AS w ON w.pid = a.pid
 WHERE a.pid <> pg_catalog.pg_backend_pid()
   AND (
           a.state IS DISTINCT FROM 'idle'
           OR a.pid IN (SELECT pg_catalog.unnest(b.blocked_by) FROM waiting AS b)
       )
   AND (a.state IS NOT NULL OR a.backend_type IS NULL)
   AND a.backend_type IS DISTINCT FROM 'walsender'
 ORDER BY a.pid;
