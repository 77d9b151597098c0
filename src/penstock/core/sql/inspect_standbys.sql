-- inspect_standbys.sql: the receivers of this server's WAL, and the lag of each
-- returns core.values.inspection.StandbyRow; needs no privilege, pg_read_all_stats for all but the pid; PostgreSQL 14+
-- psql -f inspect_standbys.sql
--
-- pg_receivewal replays nothing, so its lag is that of its flush position.
\set hides_lsn `cat parts/hides_lsn.sql`
SELECT r.pid,
       r.application_name AS name,
       pg_catalog.host(r.client_addr) AS address,
       r.state,
       r.sync_state,
       pg_catalog.pg_wal_lsn_diff(
           CASE
               WHEN :hides_lsn THEN NULL
               WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn()
               ELSE pg_catalog.pg_current_wal_lsn()
           END,
           COALESCE(r.replay_lsn, r.flush_lsn, r.sent_lsn)
       )::bigint AS lag_bytes,
       pg_catalog.date_part('epoch', COALESCE(r.replay_lag, r.flush_lag)) AS lag_s
  FROM pg_catalog.pg_stat_replication AS r
 ORDER BY r.application_name, r.pid;
