-- tablespaces_now.sql: what each tablespace contains now, and the files that running statements have spilled
-- returns temp.usage.values.TablespaceUse; needs pg_monitor; PostgreSQL 14+
-- psql -f tablespaces_now.sql
--
-- Files that parallel workers share are in folders of their own, which pg_ls_tmpdir does not list.
SELECT t.spcname::text AS name,
       COALESCE(
           NULLIF(pg_catalog.pg_tablespace_location(t.oid), ''),
           pg_catalog.current_setting('data_directory')
       ) AS directory,
       pg_catalog.pg_tablespace_size(t.oid) AS size_bytes,
       files.temp_files AS temp_files,
       files.temp_bytes AS temp_bytes
  FROM pg_catalog.pg_tablespace AS t
 CROSS JOIN LATERAL (
           SELECT pg_catalog.count(*) AS temp_files,
                  COALESCE(pg_catalog.sum(f.size), 0)::bigint AS temp_bytes
             FROM pg_catalog.pg_ls_tmpdir(t.oid) AS f
       ) AS files
 WHERE t.spcname <> 'pg_global'
 ORDER BY t.spcname;
