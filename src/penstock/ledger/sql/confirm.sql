-- confirm.sql: commit once more for a complete load, and read its counts
-- returns (totals, epoch); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f confirm.sql
\set totals `cat parts/totals.sql`
UPDATE ONLY :"ledger".loads AS l
   SET login = CASE WHEN l.login = SESSION_USER THEN l.login END
 WHERE l.id = :'load'
   AND l.state = 'complete'
RETURNING :totals AS totals,
          l.epoch;
