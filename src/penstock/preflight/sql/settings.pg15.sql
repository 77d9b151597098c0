-- settings.pg15.sql: the settings that findings depend on, their sources, and whether they can be changed
-- returns core.values.inspection.Setting; needs no privilege, pg_read_all_settings for files and paths; PostgreSQL 15+
-- psql -f settings.pg15.sql
--
-- A role sees no row of a setting that is hidden from it.
SELECT s.name,
       s.setting AS value,
       s.unit,
       s.context,
       s.source,
       s.sourcefile AS source_file,
       s.pending_restart AS is_pending_restart,
       pg_catalog.has_parameter_privilege(s.name, 'ALTER SYSTEM') AS may_alter_system
  FROM pg_catalog.pg_settings AS s
 WHERE s.name IN (
           'allow_alter_system', 'archive_mode', 'autovacuum', 'autovacuum_max_workers',
           'checkpoint_completion_target', 'checkpoint_timeout', 'cluster_name', 'config_file', 'data_checksums',
           'data_directory', 'default_tablespace', 'effective_wal_level', 'fsync', 'full_page_writes', 'hot_standby',
           'maintenance_work_mem', 'max_connections', 'max_parallel_maintenance_workers', 'max_parallel_workers',
           'max_replication_slots', 'max_slot_wal_keep_size', 'max_wal_senders', 'max_wal_size',
           'max_worker_processes', 'min_wal_size', 'reserved_connections', 'shared_buffers',
           'superuser_reserved_connections', 'synchronous_commit', 'synchronous_standby_names', 'temp_file_limit',
           'temp_tablespaces', 'wal_buffers', 'wal_compression', 'wal_level', 'work_mem'
       )
 ORDER BY s.name;
