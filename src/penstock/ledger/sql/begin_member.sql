-- begin_member.sql: record the first member of a load, if the load was recorded
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v lock=00112233445566778899aabbccddeeff -v client=host -v version=12 \
--     -v load=00000000-0000-0000-0000-000000000002 -f begin_member.sql
INSERT INTO :"ledger".members (load, number, lock_key, client, ledger_version)
SELECT l.id,
       1,
       :'lock',
       :'client',
       :'version'::integer
  FROM ONLY :"ledger".loads AS l
 WHERE l.id = :'load'::uuid;
