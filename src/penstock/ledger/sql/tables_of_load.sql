-- tables_of_load.sql: the oids of a load's tables
-- returns (oid); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f tables_of_load.sql
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
SELECT DISTINCT (:object_oid)::bigint AS oid
  FROM ONLY :"ledger".objects AS o
 WHERE o.load = :'load';
