-- aurora_readers.sql: the lag of the readers of an Aurora cluster, in milliseconds
-- returns loading.yielding.lag.AuroraReader; needs no privilege; Aurora PostgreSQL 14+
-- psql -f aurora_readers.sql
--
-- The writer's row has the session id MASTER_SESSION_ID (Aurora's documentation of aurora_replica_status).
SELECT server_id AS name,
       replica_lag_in_msec::float8 / 1000 AS lag_s
  FROM aurora_replica_status()
 WHERE session_id <> 'MASTER_SESSION_ID'
 ORDER BY server_id;
