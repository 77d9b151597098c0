-- wal_flushes.sql: how often the server has flushed WAL, as far as its processes have reported
-- returns bench.commits.experiment.WalFlushes; needs no privilege; PostgreSQL 14+
-- psql -f wal_flushes.sql
SELECT w.wal_sync AS flushes
  FROM pg_catalog.pg_stat_wal AS w;
