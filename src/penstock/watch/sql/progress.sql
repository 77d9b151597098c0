-- progress.sql: the WAL position and the next transaction id, which advance even while a procedure commits
-- returns watch.values.Progress; needs no privilege; PostgreSQL 14+
-- psql -f progress.sql
\set hides_lsn `cat ../../core/sql/parts/hides_lsn.sql`
SELECT pg_catalog.pg_wal_lsn_diff(
           CASE
               WHEN :hides_lsn THEN NULL
               WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
               ELSE pg_catalog.pg_current_wal_insert_lsn()
           END,
           '0/0'
       )::bigint AS wal_bytes,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint AS next_xid;
