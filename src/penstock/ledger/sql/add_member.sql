-- add_member.sql: add a member to a load
-- returns (number); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v lock=00112233445566778899aabbccddeeff \
--     -v client=host -v version=12 -f add_member.sql
INSERT INTO :"ledger".members (load, number, lock_key, client, ledger_version)
SELECT :'load'::uuid, coalesce(max(m.number), 0) + 1, :'lock', :'client', :'version'::integer
  FROM ONLY :"ledger".members AS m
 WHERE m.load = :'load'::uuid
RETURNING number;
