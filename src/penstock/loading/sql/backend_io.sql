-- backend_io.sql: the WAL of the whole server; other I/O is not counted
-- returns core.values.accounts.BackendIo; needs no privilege; PostgreSQL 14+
-- psql -f backend_io.sql
SELECT false AS is_exact,
       NULL::int8 AS read_bytes,
       NULL::int8 AS write_bytes,
       NULL::int8 AS extend_bytes,
       NULL::float8 AS io_s,
       w.wal_bytes::int8 AS wal_bytes,
       w.wal_fpi AS wal_images,
       NULL::int8 AS wal_image_bytes
  FROM pg_catalog.pg_stat_wal AS w;
