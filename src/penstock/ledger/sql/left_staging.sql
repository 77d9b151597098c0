-- left_staging.sql: the staging tables of loads that no process is running
-- returns ledger.values.LeftStaging; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v age_s=60 -f left_staging.sql
--
-- Staging tables of other roles are listed too, but only their owner may drop them. A load that is just reconnecting
-- holds no lock. If its staging table is dropped, it reads its files again.
\set landing_oid `cat parts/landing_oid.sql`
\set member_is_locked `cat parts/member_is_locked.sql`
\set origin `cat parts/origin.sql`
SELECT l.id::text AS load_id,
       l.lock_key,
       l.owner = CURRENT_USER AS is_own,
       t.number,
       pg_catalog.concat_ws('.', t.landing_schema, t.landing_table) AS "table",
       pg_catalog.pg_total_relation_size(c.oid) AS size_bytes
  FROM ONLY :"ledger".targets AS t
  JOIN ONLY :"ledger".loads AS l ON l.id = t.load
  JOIN pg_catalog.pg_class AS c ON c.oid = :landing_oid AND c.relname = t.landing_table
 WHERE t.kind IN ('staging', 'replacement')
   AND (:'age_s'::float8 IS NULL OR l.changed_at < pg_catalog.now() - pg_catalog.make_interval(secs => :'age_s'))
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_locks AS k
            WHERE k.locktype = 'advisory'
              AND k.objsubid = 1
              AND k.pid <> pg_catalog.pg_backend_pid()
              AND k.classid = ('x' || pg_catalog.substr(l.lock_key, 1, 8))::bit(32)::int8::oid
              AND k.objid = ('x' || pg_catalog.substr(l.lock_key, 9, 8))::bit(32)::int8::oid
       )
   AND NOT EXISTS (
           SELECT FROM ONLY :"ledger".members AS m
            WHERE m.load = l.id AND m.ended_at IS NULL AND :member_is_locked
       )
 ORDER BY l.began_at, t.number;
