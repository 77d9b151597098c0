-- end_dead.sql: end the other members whose lock is free
-- returns (client); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v member=1 -f end_dead.sql
--
-- Rows that another member is about to take, and rows of members that are still committing, are skipped.
\set member_is_locked `cat parts/member_is_locked.sql`
UPDATE ONLY :"ledger".members AS d
   SET ended_at = pg_catalog.clock_timestamp()
  FROM (
           SELECT m.load, m.number
             FROM ONLY :"ledger".members AS m
            WHERE m.load = :'load'
              AND m.ended_at IS NULL
              AND m.number <> :'member'
              AND NOT :member_is_locked
              AND EXISTS (SELECT FROM ONLY :"ledger".loads AS l WHERE l.id = m.load AND l.state = 'running')
              FOR UPDATE OF m SKIP LOCKED
       ) AS s
 WHERE d.load = s.load
   AND d.number = s.number
RETURNING d.client;
