-- wal_receivers.sql: the standbys and subscribers that stream this server's WAL, and how far each is behind
-- returns loading.yielding.lag.WalReceiver; needs pg_read_all_stats; PostgreSQL 14+
-- psql -f wal_receivers.sql
--
-- pg_receivewal replays nothing, so its position is that of its flush. A subscriber's position is the one that its slot
-- has confirmed. One that has connected again catches up first, when it is behind most. replay_lag is null while nothing
-- is to be replayed, and old if the receiver does not answer.
WITH receivers AS (
    SELECT CASE WHEN s.slot_type = 'logical' THEN 'subscriber' ELSE 'standby' END AS kind,
           r.application_name AS name,
           COALESCE(pg_catalog.host(r.client_addr), 'local') AS address,
           COALESCE(
               CASE WHEN s.slot_type = 'logical' THEN s.confirmed_flush_lsn END,
               r.replay_lsn,
               r.flush_lsn,
               r.sent_lsn
           ) AS position,
           r.flush_lsn,
           pg_catalog.date_part('epoch', r.replay_lag) AS replay_lag_s,
           pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - r.reply_time) AS reply_age_s
      FROM pg_catalog.pg_stat_replication AS r
      LEFT JOIN pg_catalog.pg_replication_slots AS s ON s.active_pid = r.pid
     WHERE r.state IN ('streaming', 'catchup')
)
SELECT kind,
       name,
       address,
       pg_catalog.pg_wal_lsn_diff(position, '0/0')::bigint AS position,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), position)::bigint AS behind_bytes,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), flush_lsn)::bigint AS unflushed_bytes,
       replay_lag_s,
       reply_age_s
  FROM receivers
 ORDER BY kind, name, address;
