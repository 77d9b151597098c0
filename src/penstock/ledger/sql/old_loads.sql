-- old_loads.sql: old complete loads of this role, except loads with rejected records, because these may be retried
-- returns (load_id); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v age_s=60 -f old_loads.sql
SELECT l.id AS load_id
  FROM ONLY :"ledger".loads AS l
 WHERE l.state = 'complete'
   AND l.owner = CURRENT_USER
   AND l.changed_at < pg_catalog.now() - pg_catalog.make_interval(secs => :'age_s')
   AND (
           l.job IS NOT NULL
        OR EXISTS (SELECT FROM ONLY :"ledger".ranges AS r WHERE r.load = l.id GROUP BY r.object HAVING count(*) > 1)
       )
   AND NOT EXISTS (SELECT FROM ONLY :"ledger".rejects AS r WHERE r.load = l.id)
   FOR UPDATE;
