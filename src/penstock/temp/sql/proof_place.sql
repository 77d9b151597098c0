-- proof_place.sql: the tablespace of the session's temporary table penstock_proof
-- returns (oid); needs no privilege; PostgreSQL 14+
-- psql -f proof_place.sql
SELECT c.reltablespace::int8 AS oid
  FROM pg_catalog.pg_class AS c
 WHERE c.oid = pg_catalog.to_regclass('pg_temp.penstock_proof');
