-- fence.sql: end the work of all processes that use the ledger; every upgrade begins with it
-- returns nothing; needs the ledger's owner; PostgreSQL 14+
-- psql -v ledger=penstock -f upgrades/fence.sql
--
-- The lock waits for the open transactions of loads, and the rows that they commit count as loaded. Later transactions
-- of these loads wait for the upgrade. They then fail, because the epoch is another one, or because their member has
-- ended. A retry of rejects is fenced by the epoch of a complete load.
LOCK TABLE ONLY :"ledger".loads, ONLY :"ledger".members IN ACCESS EXCLUSIVE MODE;
UPDATE ONLY :"ledger".loads SET epoch = epoch + 1;
UPDATE ONLY :"ledger".members SET ended_at = pg_catalog.clock_timestamp() WHERE ended_at IS NULL;
