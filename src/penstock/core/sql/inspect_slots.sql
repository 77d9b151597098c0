-- inspect_slots.sql: the replication slots and how much WAL each keeps, without the slots copied from a primary
-- returns core.values.inspection.Slot; needs no privilege; PostgreSQL 14+
-- psql -f inspect_slots.sql
--
-- A logical slot keeps WAL from restart_lsn on, although its consumer may have confirmed later WAL already. Since
-- PostgreSQL 17, a standby can copy its primary's slots. Nobody uses the copies, and nobody may drop them.
\set hides_lsn `cat parts/hides_lsn.sql`
SELECT s.slot_name::text AS name,
       s.slot_type AS kind,
       s.database::text AS database,
       s.active AS is_active,
       s.wal_status,
       pg_catalog.pg_wal_lsn_diff(now.lsn, s.restart_lsn)::bigint AS retained_bytes,
       pg_catalog.pg_wal_lsn_diff(now.lsn, s.confirmed_flush_lsn)::bigint AS unconfirmed_bytes,
       s.safe_wal_size AS safe_bytes
  FROM pg_catalog.pg_replication_slots AS s
 CROSS JOIN (
           SELECT CASE
                      WHEN :hides_lsn THEN NULL
                      WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                      ELSE pg_catalog.pg_current_wal_lsn()
                  END AS lsn
       ) AS now
 WHERE COALESCE(pg_catalog.to_jsonb(s) ->> 'synced', 'false') = 'false'
 ORDER BY s.slot_name;
