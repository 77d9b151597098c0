-- temp_files.sql: temporary files by tablespace and backend
-- returns (counters); needs pg_monitor; PostgreSQL 14+
-- psql -f temp_files.sql
--
-- A file's name contains the backend's pid. Files of parallel sorts and hashes are in folders, and pg_ls_tmpdir does
-- not list these. Source: fd.c, OpenTemporaryFileInTablespace.
SELECT pg_catalog.jsonb_build_object(
           'tablespace', t.spcname,
           'pid', (pg_catalog.regexp_match(f.name, '^pgsql_tmp([0-9]+)'))[1]::int,
           'bytes', pg_catalog.sum(f.size)
       ) AS counters
  FROM pg_catalog.pg_tablespace AS t,
       pg_catalog.pg_ls_tmpdir(t.oid) AS f
 WHERE t.spcname <> 'pg_global'
 GROUP BY t.spcname, (pg_catalog.regexp_match(f.name, '^pgsql_tmp([0-9]+)'))[1];
