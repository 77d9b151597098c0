-- 12.sql: from version 11 to 12: ranges and targets record the transaction that has stored their rows
-- returns nothing; needs the ledger's owner; PostgreSQL 14+
-- psql -v ledger=penstock -f upgrades/12.sql
ALTER TABLE :"ledger".ranges ADD COLUMN transaction xid8;
ALTER TABLE :"ledger".ranges ALTER COLUMN transaction SET DEFAULT pg_catalog.pg_current_xact_id();
ALTER TABLE :"ledger".targets ADD COLUMN transaction xid8;
ALTER TABLE :"ledger".members DROP CONSTRAINT members_version;
ALTER TABLE :"ledger".members
    ADD CONSTRAINT members_version CHECK (ended_at IS NOT NULL OR ledger_version = 12);
