-- has_all.sql: whether every record of a load is committed
-- returns (has_all); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f has_all.sql
\set is_complete `cat parts/is_complete.sql`
\set missing `cat parts/missing.sql`
SELECT NOT EXISTS (:missing) AS has_all
  FROM ONLY :"ledger".loads AS l
 WHERE l.id = :'load';
