-- received.sql: how far the WAL of a standby goes, and whether a WAL receiver still brings more
-- returns inspect.replication.Received; needs no privilege, pg_read_all_stats for the receiver's state; PostgreSQL 14+
-- psql -f received.sql
--
-- What was replayed from its own files counts too, where no WAL receiver has run since its start; 0 on a primary.
SELECT pg_catalog.pg_wal_lsn_diff(
           GREATEST(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn(), '0/0'),
           '0/0'
       )::bigint AS end_bytes,
       EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver AS r WHERE r.status = 'streaming') AS is_streaming;
