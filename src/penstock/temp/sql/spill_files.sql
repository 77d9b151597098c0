-- spill_files.sql: how many temporary files in a tablespace have names that begin with a text
-- returns (count); needs pg_monitor; PostgreSQL 14+
-- psql -v oid=1663 -v prefix=pgsql_tmp1. -f spill_files.sql
SELECT pg_catalog.count(*)
  FROM pg_catalog.pg_ls_tmpdir(:'oid'::oid) AS f
 WHERE pg_catalog.starts_with(f.name, :'prefix');
