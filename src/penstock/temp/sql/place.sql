-- place.sql: the facts that decide whether temporary work can be placed on this server
-- returns temp.place.kind.PlaceRow; needs no privilege, pg_read_all_settings for the data directory; PostgreSQL 14+
-- psql -f place.sql
SELECT CASE
           WHEN pg_catalog.pg_has_role(CURRENT_USER, 'pg_read_all_settings', 'USAGE')
               THEN pg_catalog.current_setting('data_directory')
       END AS data_directory,
       pg_catalog.format(
           'PG_%s_%s',
           pg_catalog.current_setting('server_version_num')::int / 10000,
           (SELECT c.catalog_version_no FROM pg_catalog.pg_control_system() AS c)
       ) AS version_folder,
       pg_catalog.current_setting('temp_file_limit') AS temp_file_limit,
       ARRAY(
           SELECT COALESCE(s.application_name, '(not visible)')
             FROM pg_catalog.pg_stat_replication AS s
            ORDER BY 1
       ) AS receivers;
