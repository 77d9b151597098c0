-- 10.sql: from version 9 to 10: a member records the version of the ledger that it knows
-- returns nothing; needs the ledger's owner; PostgreSQL 14+
-- psql -v ledger=penstock -f upgrades/10.sql
ALTER TABLE :"ledger".members ADD COLUMN ledger_version integer NOT NULL DEFAULT 9;
ALTER TABLE :"ledger".members ALTER COLUMN ledger_version DROP DEFAULT;
ALTER TABLE :"ledger".members
    ADD CONSTRAINT members_version CHECK (ended_at IS NOT NULL OR ledger_version = 10);
