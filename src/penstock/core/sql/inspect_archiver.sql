-- inspect_archiver.sql: archived and failed WAL segments, and the WAL since the last one archived
-- returns core.values.inspection.Archiver; needs no privilege; PostgreSQL 14+
-- psql -f inspect_archiver.sql
--
-- A segment's name is timeline, then the high and the low part of its number (XLogFileName in xlog_internal.h).
SELECT a.archived_count AS archived,
       a.failed_count AS failed,
       pg_catalog.date_part('epoch', a.last_archived_time) AS last_archived_at_s,
       pg_catalog.date_part('epoch', a.last_failed_time) AS last_failed_at_s,
       a.last_failed_wal AS last_failed,
       CASE
           WHEN a.last_archived_wal ~ '^[0-9A-F]{24}$' AND NOT pg_catalog.pg_is_in_recovery()
           THEN GREATEST(
                    0,
                    pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '0/0')
                    - ('x' || pg_catalog.substr(a.last_archived_wal, 9, 8))::bit(32)::bigint * 4294967296
                    - (('x' || pg_catalog.substr(a.last_archived_wal, 17, 8))::bit(32)::bigint + 1)
                    * pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))
                )::bigint
       END AS lag_bytes
  FROM pg_catalog.pg_stat_archiver AS a
 WHERE pg_catalog.current_setting('archive_mode') <> 'off';
