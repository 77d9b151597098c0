-- spilling_statements.sql: the texts of this database's statements that spilled, the most first
-- returns (query); needs pg_stat_statements; PostgreSQL 14+
-- psql -v statements=other -v explain='EXPLAIN(ANALYZE)' -f spilling_statements.sql
\set not_ours `cat parts/not_ours.sql`
SELECT s.query
  FROM :"statements".pg_stat_statements AS s
 WHERE s.temp_blks_written > 0
   AND :not_ours
   AND s.dbid = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
 ORDER BY s.temp_blks_written DESC;
