-- inspect_marks.sql: marks that only managed services, extensions and cluster managers have, by kind and name
-- returns core.values.inspection.Mark; needs no privilege; PostgreSQL 14+
-- psql -f inspect_marks.sql
--
-- No values are returned, because commands may contain secrets. core/catalogue/settings.py says what each mark means.
SELECT 'role' AS kind,
       r.rolname::text AS name
  FROM pg_catalog.pg_roles AS r
 WHERE r.rolname IN (
           'rds_superuser', 'cloudsqlsuperuser', 'alloydbsuperuser', 'azure_pg_admin', 'supabase_admin',
           '_crunchyrepl', 'robot_zmon'
       )
UNION ALL
SELECT 'setting',
       s.name
  FROM (
           VALUES ('rds.extensions'), ('azure.extensions'), ('neon.timeline_id'), ('cnpg.config_sha256')
       ) AS s (name)
 WHERE pg_catalog.current_setting(s.name, true) IS NOT NULL
UNION ALL
SELECT 'setting',
       'rds.extensions with aurora_stat_utils'
 WHERE pg_catalog.current_setting('rds.extensions', true) LIKE '%aurora\_stat\_utils%'
UNION ALL
SELECT 'extension',
       e.extname::text
  FROM pg_catalog.pg_extension AS e
 WHERE e.extname = 'citus'
UNION ALL
SELECT 'function',
       f.name
  FROM (
           VALUES ('pg_catalog.aurora_version()'), ('rds_tools.multi_az_db_cluster_source_dbi_resource_id()')
       ) AS f (name)
 WHERE pg_catalog.to_regprocedure(f.name) IS NOT NULL
UNION ALL
SELECT 'command line',
       s.name
  FROM pg_catalog.pg_settings AS s
 WHERE s.source = 'command line'
   AND s.name IN ('cluster_name', 'hot_standby', 'max_connections', 'wal_level', 'wal_log_hints')
UNION ALL
SELECT 'command',
       s.name || ' with /controller/manager'
  FROM pg_catalog.pg_settings AS s
 WHERE s.name IN ('archive_command', 'restore_command')
   AND s.setting LIKE '%/controller/manager%';
