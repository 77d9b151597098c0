-- temp_tablespaces_now.sql: what lies in each tablespace now, and the files that statements at work have spilled
-- returns model.temp.usage.TablespaceUse; needs no privilege, pg_monitor for sizes and files; PostgreSQL 14+
-- psql -f temp_tablespaces_now.sql
--
-- Files that parallel workers share lie in folders of their own, which pg_ls_tmpdir does not enter.
SELECT t.spcname::text AS name,
       COALESCE(
           NULLIF(pg_catalog.pg_tablespace_location(t.oid), ''),
           CASE WHEN may.sees THEN pg_catalog.current_setting('data_directory') END
       ) AS directory,
       CASE WHEN may.sees THEN pg_catalog.pg_tablespace_size(t.oid) END AS size_bytes,
       files.temp_files AS temp_files,
       files.temp_bytes AS temp_bytes
  FROM pg_catalog.pg_tablespace AS t
 CROSS JOIN (SELECT pg_catalog.pg_has_role(CURRENT_USER, 'pg_monitor', 'USAGE') AS sees) AS may
  LEFT JOIN LATERAL (
           SELECT pg_catalog.count(*) AS temp_files,
                  COALESCE(pg_catalog.sum(f.size), 0)::bigint AS temp_bytes
             FROM pg_catalog.pg_ls_tmpdir(t.oid) AS f
       ) AS files ON may.sees
 WHERE t.spcname <> 'pg_global'
 ORDER BY t.spcname;
