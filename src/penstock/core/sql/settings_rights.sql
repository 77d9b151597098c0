-- settings_rights.sql: which of the rights for a lease by ALTER SYSTEM the current role has
-- returns core.catalogue.settings.SettingsRights; needs no privilege; PostgreSQL 14+
-- psql -f settings_rights.sql
--
-- Run it in the database in which changes of the server are recorded. allow_alter_system exists since PostgreSQL 17.
SELECT r.rolname::text AS "user",
       r.rolsuper AS is_superuser,
       pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE') AS reads_settings,
       pg_catalog.has_table_privilege('pg_catalog.pg_file_settings', 'SELECT')
       AND pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE') AS reads_files,
       pg_catalog.has_function_privilege('pg_catalog.pg_reload_conf()', 'EXECUTE') AS may_reload,
       CASE
           WHEN pg_catalog.count(t.oid) > 0
               THEN pg_catalog.bool_and(
                        pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                        AND pg_catalog.has_table_privilege(t.oid, 'SELECT')
                        AND pg_catalog.has_table_privilege(t.oid, 'INSERT')
                        AND pg_catalog.has_table_privilege(t.oid, 'DELETE')
                    )
           WHEN pg_catalog.count(n.oid) > 0
               THEN pg_catalog.bool_and(pg_catalog.has_schema_privilege(n.oid, 'CREATE'))
           ELSE pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
       END AS may_record,
       COALESCE(pg_catalog.current_setting('allow_alter_system', true), 'on') = 'on' AS allows_alter_system
  FROM pg_catalog.pg_roles AS r
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = 'penstock'
  LEFT JOIN pg_catalog.pg_class AS t ON t.relnamespace = n.oid AND t.relname IN ('changes', 'holds')
 WHERE r.rolname = CURRENT_USER
 GROUP BY r.rolname,
          r.rolsuper;
