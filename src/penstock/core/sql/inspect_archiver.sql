-- inspect_archiver.sql: archived and failed WAL segments, and the WAL since the first one that is not archived
-- returns core.values.inspection.Archiver; needs no privilege; PostgreSQL 14+
-- psql -f inspect_archiver.sql
--
-- Segments are archived in order. If the last attempt failed, its segment is the first that is not archived. If the
-- last attempt succeeded, this is the segment after it. A segment's name is the timeline, and then the high and the low
-- part of the segment's number (XLogFileName in xlog_internal.h).
\set hides_lsn `cat parts/hides_lsn.sql`
SELECT a.archived_count AS archived,
       a.failed_count AS failed,
       pg_catalog.date_part('epoch', a.last_archived_time) AS last_archived_at_s,
       pg_catalog.date_part('epoch', a.last_failed_time) AS last_failed_at_s,
       a.last_failed_wal AS last_failed,
       CASE
           WHEN l.name ~ '^[0-9A-F]{24}$' AND NOT pg_catalog.pg_is_in_recovery() AND NOT :hides_lsn
           THEN GREATEST(
                    0,
                    pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), '0/0')
                    - ('x' || pg_catalog.substr(l.name, 9, 8))::bit(32)::bigint * 4294967296
                    - (('x' || pg_catalog.substr(l.name, 17, 8))::bit(32)::bigint + l.archived)
                    * pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))
                )::bigint
       END AS lag_bytes
  FROM pg_catalog.pg_stat_archiver AS a
  LEFT JOIN LATERAL (
           SELECT w.name,
                  w.archived
             FROM (
                      VALUES
                          (a.last_archived_wal, 1, a.last_archived_time),
                          (a.last_failed_wal, 0, a.last_failed_time)
                  ) AS w (name, archived, happened)
            WHERE w.happened IS NOT NULL
            ORDER BY w.happened DESC
            LIMIT 1
       ) AS l
    ON true
 WHERE pg_catalog.current_setting('archive_mode') <> 'off';
