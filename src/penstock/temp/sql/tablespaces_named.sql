-- tablespaces_named.sql: the tablespaces, for a role without the right to call pg_ls_tmpdir in a query
-- returns temp.usage.values.TablespaceUse; needs no privilege; PostgreSQL 14+
-- psql -f tablespaces_named.sql
SELECT t.spcname::text AS name,
       NULLIF(pg_catalog.pg_tablespace_location(t.oid), '') AS directory,
       NULL::bigint AS size_bytes,
       NULL::bigint AS temp_files,
       NULL::bigint AS temp_bytes
  FROM pg_catalog.pg_tablespace AS t
 WHERE t.spcname <> 'pg_global'
 ORDER BY t.spcname;
