-- landings.sql: what a load has created for its targets
-- returns (number, target_oid, target_schema, target_table, is_truncated, kind, schema, table, oid,
--    definition); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f landings.sql
\set landing_oid `cat parts/landing_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
SELECT t.number, coalesce(:target_oid, 0) AS target_oid, t.target_schema, t.target_table,
       t.truncated_at IS NOT NULL AS is_truncated, t.kind, t.landing_schema AS schema,
       t.landing_table AS "table", :landing_oid AS oid, t.definition
  FROM ONLY :"ledger".targets AS t
 WHERE t.load = :'load'
 ORDER BY t.number;
