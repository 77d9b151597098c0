-- prewarm_schema.sql: the schema of the extension pg_prewarm, no row without the extension
-- returns core.sql.NameRow; needs no privilege; PostgreSQL 14+
-- psql -f prewarm_schema.sql
SELECT n.nspname::text AS name
  FROM pg_catalog.pg_extension AS e
  JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace
 WHERE e.extname = 'pg_prewarm';
