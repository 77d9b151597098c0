-- backend_io.pg16.sql: the I/O of all clients, and the WAL of the whole server
-- returns core.values.accounts.BackendIo; needs no privilege; PostgreSQL 16+
-- psql -f backend_io.pg16.sql
--
-- PostgreSQL 16 and 17 count blocks: op_bytes is the block size.
SELECT false AS is_exact,
       (i.reads * b.bytes)::int8 AS read_bytes,
       (i.writes * b.bytes)::int8 AS write_bytes,
       (i.extends * b.bytes)::int8 AS extend_bytes,
       CASE WHEN pg_catalog.current_setting('track_io_timing')::bool THEN i.io_ms / 1000 END AS io_s,
       w.wal_bytes::int8 AS wal_bytes,
       w.wal_fpi AS wal_images,
       NULL::int8 AS wal_image_bytes
  FROM pg_catalog.pg_stat_wal AS w
  CROSS JOIN (SELECT pg_catalog.current_setting('block_size')::int8 AS bytes) AS b
  CROSS JOIN (
      SELECT pg_catalog.sum(s.reads) AS reads,
             pg_catalog.sum(s.writes) AS writes,
             pg_catalog.sum(s.extends) AS extends,
             pg_catalog.sum(
                 COALESCE(s.read_time, 0) + COALESCE(s.write_time, 0)
                 + COALESCE(s.extend_time, 0) + COALESCE(s.fsync_time, 0)
             ) AS io_ms
        FROM pg_catalog.pg_stat_io AS s
       WHERE s.backend_type = 'client backend'
         AND s.object <> 'wal'
  ) AS i;
