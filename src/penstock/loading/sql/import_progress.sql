-- import_progress.sql: the progress of the imports of the given backends
-- returns loading.imports.server.ImportRow; needs no privilege for sessions of the same role; PostgreSQL 14+
-- psql -v pids='{1,2}' -f import_progress.sql
SELECT own.pid,
       c.tuples_processed AS rows,
       c.bytes_processed AS bytes_read,
       coalesce(a.wait_event_type = 'Lock', false) AS is_blocked
  FROM pg_catalog.unnest(:'pids'::int[]) AS own (pid)
  LEFT JOIN pg_catalog.pg_stat_progress_copy AS c ON c.pid = own.pid
  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = own.pid;
