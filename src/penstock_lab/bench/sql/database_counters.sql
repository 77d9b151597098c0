-- database_counters.sql: what sessions of this database have committed and inserted, as far as they have reported
-- returns bench.commits.experiment.DatabaseCounters; needs no privilege; PostgreSQL 14+
-- psql -f database_counters.sql
SELECT d.xact_commit,
       d.tup_inserted
  FROM pg_catalog.pg_stat_database AS d
 WHERE d.datname = pg_catalog.current_database();
