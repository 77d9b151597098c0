-- rights.sql: whether the role sees other sessions' activity, and the schema of pg_stat_statements
-- returns watch.activity.RightsRow; needs no privilege; PostgreSQL 14+
-- psql -f rights.sql
SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AS reads_statistics,
       (
           SELECT n.nspname::text
             FROM pg_catalog.pg_extension AS e
             JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace
            WHERE e.extname = 'pg_stat_statements'
       ) AS statements_schema;
