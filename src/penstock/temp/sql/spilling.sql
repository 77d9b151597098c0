-- spilling.sql: the sessions that have temporary files in a tablespace now
-- returns core.sql.NameRow; needs pg_monitor; PostgreSQL 14+
-- psql -v oid=1663 -f spilling.sql
--
-- Sessions with only files of parallel workers are missing, because pg_ls_tmpdir does not show such files. DROP
-- TABLESPACE fails if they exist.
SELECT DISTINCT pg_catalog.format('temporary files of backend %s (%s in %s)', a.pid, a.usename, a.datname) AS name
  FROM pg_catalog.pg_ls_tmpdir(:'oid'::oid) AS f
  JOIN pg_catalog.pg_stat_activity AS a ON pg_catalog.starts_with(f.name, 'pgsql_tmp' || a.pid || '.')
 ORDER BY 1;
