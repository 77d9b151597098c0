-- 11.sql: from version 10 to 11: a load records with which event it began, which tables it created, and who failed later
-- returns nothing; needs the ledger's owner; PostgreSQL 14+
-- psql -v ledger=penstock -f upgrades/11.sql
ALTER TABLE :"ledger".loads
    ADD COLUMN begin_event bigint,
    ADD COLUMN created text[] NOT NULL DEFAULT '{}',
    ADD COLUMN failed_later uuid,
    ADD COLUMN failed_event bigint;
ALTER TABLE :"ledger".members DROP CONSTRAINT members_version;
ALTER TABLE :"ledger".members
    ADD CONSTRAINT members_version CHECK (ended_at IS NOT NULL OR ledger_version = 11);
