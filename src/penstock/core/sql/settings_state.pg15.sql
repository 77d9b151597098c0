-- settings_state.pg15.sql: the settings that profiles may change, the sources of their values, and who may change them
-- returns core.catalogue.settings.SettingState; needs no privilege, pg_read_all_settings for files; PostgreSQL 15+
-- psql -f settings_state.pg15.sql
--
-- GRANT ALTER SYSTEM ON PARAMETER exists since PostgreSQL 15.
SELECT s.name,
       s.setting AS value,
       s.unit,
       s.context,
       s.source,
       s.sourcefile AS source_file,
       s.sourceline AS source_line,
       pg_catalog.has_parameter_privilege(s.name, 'ALTER SYSTEM') AS may_alter_system
  FROM pg_catalog.pg_settings AS s
 WHERE s.name IN (
           'checkpoint_completion_target', 'checkpoint_timeout', 'maintenance_work_mem', 'max_wal_size', 'min_wal_size'
       )
 ORDER BY s.name;
