-- statements.sql: the statements that pg_stat_statements has
-- returns (statement, database, role); needs pg_stat_statements; PostgreSQL 14+
-- psql -v statements=other -v explain='EXPLAIN(ANALYZE)' -f statements.sql
--
-- Rows are read as jsonb, because the columns depend on the extension's version.
\set not_ours `cat parts/not_ours.sql`
SELECT pg_catalog.to_jsonb(s) AS statement,
       d.datname::text AS database,
       r.rolname::text AS role
  FROM :"statements".pg_stat_statements AS s
  LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.dbid
  LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.userid
 WHERE s.queryid IS NOT NULL
   AND :not_ours;
