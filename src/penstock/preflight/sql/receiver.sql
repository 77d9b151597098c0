-- receiver.sql: how a standby follows its primary; no row on a primary
-- returns core.values.inspection.Receiver; needs no privilege, pg_read_all_stats for status and sender; PostgreSQL 14+
-- psql -f receiver.sql
\set hides_lsn `cat ../../core/sql/parts/hides_lsn.sql`
SELECT w.status,
       w.sender_host,
       w.sender_port,
       CASE
           WHEN NOT :hides_lsn
           THEN pg_catalog.pg_wal_lsn_diff(
                    pg_catalog.pg_last_wal_receive_lsn(),
                    pg_catalog.pg_last_wal_replay_lsn()
                )::bigint
       END AS lag_bytes,
       pg_catalog.date_part(
           'epoch',
           pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()
       ) AS delay_s
  FROM (SELECT) AS one
  LEFT JOIN pg_catalog.pg_stat_wal_receiver AS w ON true
 WHERE pg_catalog.pg_is_in_recovery();
