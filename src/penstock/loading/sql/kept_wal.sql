-- kept_wal.sql: how much WAL each replication slot keeps from removal
-- returns loading.yielding.lag.KeptWal; needs no privilege; PostgreSQL 14+
-- psql -f kept_wal.sql
SELECT slot_name::text AS name,
       pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn)::bigint AS kept_bytes
  FROM pg_catalog.pg_replication_slots
 WHERE restart_lsn IS NOT NULL
 ORDER BY slot_name;
