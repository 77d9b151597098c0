-- end_members.sql: end the members of a load, or one of them, or those whose lock is free
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v member=1 -v only_dead=true \
--     -f end_members.sql
\set member_is_locked `cat parts/member_is_locked.sql`
UPDATE ONLY :"ledger".members AS m
   SET ended_at = pg_catalog.clock_timestamp()
 WHERE m.load = :'load'
   AND m.ended_at IS NULL
   AND (:'member'::integer IS NULL OR m.number = :'member'::integer)
   AND (NOT :'only_dead'::boolean OR NOT :member_is_locked);
