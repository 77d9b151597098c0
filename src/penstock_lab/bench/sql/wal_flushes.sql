-- wal_flushes.sql: how often the server has flushed WAL, as far as its processes have reported
-- returns bench.commits.experiment.WalFlushes; needs no privilege; PostgreSQL 14+
-- psql -f wal_flushes.sql
--
-- From PostgreSQL 18 the column is gone, and wal_flushes.pg18.sql is used: here its result is null.
SELECT (pg_catalog.to_jsonb(w) ->> 'wal_sync')::bigint AS flushes
  FROM pg_catalog.pg_stat_wal AS w;
