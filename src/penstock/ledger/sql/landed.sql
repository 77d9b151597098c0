-- landed.sql: the targets of a load whose records were staged or put into a replacing table
-- returns ledger.values.LandedTarget; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f landed.sql
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
SELECT t.number,
       t.kind,
       t.landing_schema,
       t.landing_table,
       coalesce(c.oid, 0)::int8 AS target_oid,
       n.nspname AS schema,
       c.relname AS "table"
  FROM ONLY :"ledger".targets AS t
  LEFT JOIN pg_catalog.pg_class AS c ON c.oid = :target_oid
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE t.load = :'load'
   AND t.kind IS NOT NULL
 ORDER BY t.number;
