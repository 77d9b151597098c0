-- databases.sql: what each database has spilled since its counters were reset; temporary tables do not count
-- returns temp.usage.values.DatabaseUse; needs no privilege; PostgreSQL 14+
-- psql -f databases.sql
SELECT d.datname::text AS name,
       d.temp_files AS temp_files,
       d.temp_bytes AS temp_bytes,
       d.stats_reset AS reset_at
  FROM pg_catalog.pg_stat_database AS d
 WHERE d.datname IS NOT NULL
 ORDER BY d.datname;
