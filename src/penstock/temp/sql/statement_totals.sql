-- statement_totals.sql: calls and times of this database's statements, by their texts
-- returns (query, calls, total_ms); needs pg_stat_statements; PostgreSQL 14+
-- psql -v statements=other -v explain='EXPLAIN(ANALYZE)' -f statement_totals.sql
\set not_ours `cat parts/not_ours.sql`
SELECT s.query,
       sum(s.calls)::bigint AS calls,
       sum(s.total_exec_time)::float8 AS total_ms
  FROM :"statements".pg_stat_statements AS s
 WHERE s.queryid IS NOT NULL
   AND s.calls > 0
   AND :not_ours
   AND s.dbid = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
 GROUP BY s.query;
