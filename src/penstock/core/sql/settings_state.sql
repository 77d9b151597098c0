-- settings_state.sql: the settings that profiles may change, the sources of their values, and who may change them
-- returns core.catalogue.settings.SettingState; needs no privilege, pg_read_all_settings for files; PostgreSQL 14+
-- psql -f settings_state.sql
--
-- Before PostgreSQL 15 only superusers may run ALTER SYSTEM.
SELECT s.name,
       s.setting AS value,
       s.unit,
       s.context,
       s.source,
       s.sourcefile AS source_file,
       s.sourceline AS source_line,
       r.rolsuper AS may_alter_system
  FROM pg_catalog.pg_settings AS s
  JOIN pg_catalog.pg_roles AS r ON r.rolname = CURRENT_USER
 WHERE s.name IN (
           'checkpoint_completion_target', 'checkpoint_timeout', 'maintenance_work_mem', 'max_wal_size', 'min_wal_size'
       )
 ORDER BY s.name;
