-- newest.sql: this role's newest load, and the load that began after it and failed before its first commit
-- returns (load_id, failed_later); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -f newest.sql
SELECT l.id::text AS load_id,
       pg_catalog.to_jsonb(l) ->> 'failed_later' AS failed_later
  FROM ONLY :"ledger".loads AS l
 WHERE l.owner = CURRENT_USER
 ORDER BY coalesce((pg_catalog.to_jsonb(l) ->> 'begin_event')::int8, l.event) DESC
 LIMIT 1;
