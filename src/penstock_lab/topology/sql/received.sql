-- received.sql: the end of the WAL that a standby has, and whether a WAL receiver is streaming more
-- returns topology.parts.Received; needs no privilege, pg_read_all_stats for the receiver's state; PostgreSQL 14+
-- psql -f received.sql
--
-- If no WAL receiver has run since the standby's start, end_bytes is the end of the WAL that the standby has replayed
-- from its own files. A primary has 0.
SELECT pg_catalog.pg_wal_lsn_diff(
           GREATEST(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn(), '0/0'),
           '0/0'
       )::bigint AS end_bytes,
       EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver AS r WHERE r.status = 'streaming') AS is_streaming;
