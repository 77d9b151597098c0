-- directories.sql: the directories of tablespaces; for pg_default it is the data directory
-- returns (name, directory); needs pg_read_all_settings for the data directory; PostgreSQL 14+
-- psql -f directories.sql
SELECT t.spcname::text AS name,
       COALESCE(
           NULLIF(pg_catalog.pg_tablespace_location(t.oid), ''),
           CASE
               WHEN pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE')
               THEN pg_catalog.current_setting('data_directory')
           END
       ) AS directory
  FROM pg_catalog.pg_tablespace AS t
 WHERE t.spcname <> 'pg_global'
 ORDER BY t.spcname;
