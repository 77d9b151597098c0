-- take_over.sql: take a running load over by raising its epoch
-- returns (epoch); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v client=host -v job='{}' -v is_own_job=true -v load=00000000-0000-0000-0000-000000000001 \
--     -f take_over.sql
UPDATE ONLY :"ledger".loads
   SET epoch = epoch + 1,
       client = :'client',
       job = coalesce(:'job'::jsonb, job),
       login = CASE WHEN :'is_own_job' OR login = SESSION_USER THEN SESSION_USER END,
       changed_at = pg_catalog.now()
 WHERE id = :'load'
   AND state = 'running'
RETURNING epoch;
