-- wal_flushes.pg18.sql: how often the server has flushed WAL, as far as its processes have reported
-- returns bench.commits.experiment.WalFlushes; needs no privilege; PostgreSQL 18+
-- psql -f wal_flushes.pg18.sql
SELECT coalesce(pg_catalog.sum(i.fsyncs), 0)::bigint AS flushes
  FROM pg_catalog.pg_stat_io AS i
 WHERE i.object = 'wal';
