-- latest_rejecting.sql: the newest load with rejected records that this role may read
-- returns (load_id); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -f latest_rejecting.sql
SELECT l.id::text AS load_id
  FROM ONLY :"ledger".loads AS l
 WHERE EXISTS (SELECT FROM ONLY :"ledger".rejects AS r WHERE r.load = l.id)
 ORDER BY coalesce(l.begin_event, l.event) DESC
 LIMIT 1;
