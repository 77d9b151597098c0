-- settings_lines.sql: the lines of postgresql.auto.conf for settings that leases change, and invalid lines of any file
-- returns core.catalogue.settings.FileLine; needs SELECT on pg_file_settings, its function, pg_read_all_settings; PostgreSQL 14+
-- psql -f settings_lines.sql
--
-- If a name occurs twice, the last line counts. A line that cannot be read (name is null) makes every reload fail.
SELECT f.name,
       f.setting AS text,
       f.sourcefile AS file,
       f.sourceline AS line,
       f.error
  FROM pg_catalog.pg_file_settings AS f
 WHERE (f.name IS NULL AND f.error IS NOT NULL)
    OR (
           f.sourcefile = pg_catalog.current_setting('data_directory') || '/postgresql.auto.conf'
       AND f.name IN ('checkpoint_completion_target', 'checkpoint_timeout', 'max_wal_size', 'min_wal_size')
       )
 ORDER BY f.seqno;
