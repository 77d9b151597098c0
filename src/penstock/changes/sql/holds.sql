-- holds.sql: the holds of this database, or those of one table or holder
-- returns (holder_id, target_oid, lock, names, stands, until, owner, client, reason, made_at,
--    server, member_locks); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v target=0 -v holder=00000000-0000-0000-0000-000000000001 -f holds.sql
--
-- A load by several processes needs its holds as long as one of them loads, also while none of them leads.
\set origin `cat ../../ledger/sql/parts/origin.sql`
SELECT h.holder::text AS holder_id,
       target_oid::bigint,
       lock_key AS lock,
       names,
       coalesce(until > pg_catalog.clock_timestamp(), false) AS stands,
       CASE WHEN pg_catalog.isfinite(until) THEN until END AS until,
       owner::text,
       client,
       reason,
       made_at,
       server,
       ARRAY(
           SELECT m.lock_key
             FROM ONLY :"ledger".members AS m
             JOIN ONLY :"ledger".loads AS l ON l.id = m.load
            WHERE m.load = h.holder
              AND m.ended_at IS NULL
              AND l.state = 'running'
       ) AS member_locks
  FROM ONLY :"ledger".holds AS h
 WHERE origin = :origin
   AND (:'target'::bigint IS NULL OR target_oid = :'target'::bigint::oid)
   AND (:'holder'::uuid IS NULL OR holder = :'holder'::uuid)
 ORDER BY made_at, holder;
