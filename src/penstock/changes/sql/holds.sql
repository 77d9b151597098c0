-- holds.sql: the holds of this database, or those of one table or holder
-- returns (holder_id, target_oid, lock, names, stands, until, owner, client, reason, made_at,
--    server); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v target=0 -v holder=00000000-0000-0000-0000-000000000001 -f holds.sql
\set origin `cat ../../ledger/sql/parts/origin.sql`
SELECT holder::text AS holder_id,
       target_oid::bigint,
       lock_key AS lock,
       names,
       coalesce(until > pg_catalog.clock_timestamp(), false) AS stands,
       CASE WHEN pg_catalog.isfinite(until) THEN until END AS until,
       owner::text,
       client,
       reason,
       made_at,
       server
  FROM ONLY :"ledger".holds
 WHERE origin = :origin
   AND (:'target'::bigint IS NULL OR target_oid = :'target'::bigint::oid)
   AND (:'holder'::uuid IS NULL OR holder = :'holder'::uuid)
 ORDER BY made_at, holder;
