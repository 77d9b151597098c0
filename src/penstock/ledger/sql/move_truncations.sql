-- move_truncations.sql: move the records of a load's truncations to the row that keep_truncations.sql has inserted
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 \
--     -v kept=00000000-0000-0000-0000-000000000002 -f move_truncations.sql
UPDATE ONLY :"ledger".targets
   SET load = :'kept',
       kind = NULL,
       landing_schema = NULL,
       landing_table = NULL,
       landing_oid = NULL,
       definition = NULL,
       staged = 0,
       inserted = 0,
       updated = 0,
       duplicates = 0,
       existing = 0,
       suppressed = 0,
       transaction = NULL
 WHERE load = :'load'
   AND truncated_at IS NOT NULL;
