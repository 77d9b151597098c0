-- backend_io.pg18.sql: the I/O and the WAL of some backends
-- returns core.values.accounts.BackendIo; needs no privilege; PostgreSQL 18+
-- psql -v pids='{1,2}' -f backend_io.pg18.sql
--
-- PostgreSQL 19 has wal_fpi_bytes, which is read through JSON.
SELECT true AS is_exact,
       i.read_bytes::int8 AS read_bytes,
       i.write_bytes::int8 AS write_bytes,
       i.extend_bytes::int8 AS extend_bytes,
       CASE WHEN pg_catalog.current_setting('track_io_timing')::bool THEN i.io_ms / 1000 END AS io_s,
       w.wal_bytes::int8 AS wal_bytes,
       w.wal_images::int8 AS wal_images,
       w.wal_image_bytes::int8 AS wal_image_bytes
  FROM (
      SELECT pg_catalog.sum(s.read_bytes) AS read_bytes,
             pg_catalog.sum(s.write_bytes) AS write_bytes,
             pg_catalog.sum(s.extend_bytes) AS extend_bytes,
             pg_catalog.sum(
                 COALESCE(s.read_time, 0) + COALESCE(s.write_time, 0)
                 + COALESCE(s.extend_time, 0) + COALESCE(s.fsync_time, 0)
             ) AS io_ms
        FROM pg_catalog.unnest(:'pids'::int[]) AS p (pid)
       CROSS JOIN LATERAL pg_catalog.pg_stat_get_backend_io(p.pid) AS s
       WHERE s.object <> 'wal'
  ) AS i
  CROSS JOIN (
      SELECT pg_catalog.sum(s.wal_bytes) AS wal_bytes,
             pg_catalog.sum(s.wal_fpi) AS wal_images,
             pg_catalog.sum((pg_catalog.to_jsonb(s) ->> 'wal_fpi_bytes')::numeric) AS wal_image_bytes
        FROM pg_catalog.unnest(:'pids'::int[]) AS p (pid)
       CROSS JOIN LATERAL pg_catalog.pg_stat_get_backend_wal(p.pid) AS s
  ) AS w;
