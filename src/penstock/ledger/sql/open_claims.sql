-- open_claims.sql: let members claim the objects of a load that are not complete
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f open_claims.sql
\set is_complete `cat parts/is_complete.sql`
\set missing `cat parts/missing.sql`
INSERT INTO :"ledger".claims (load, object)
SELECT l.id, n.number
  FROM ONLY :"ledger".loads AS l
  CROSS JOIN LATERAL (:missing) AS n
 WHERE l.id = :'load'
    ON CONFLICT DO NOTHING;
