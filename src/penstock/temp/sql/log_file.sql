-- log_file.sql: the current log file, and its format: the first of `formats` that the server writes
-- returns (format, path); needs EXECUTE on pg_current_logfile(text); PostgreSQL 14+
-- psql -v formats='{csvlog,stderr}' -f log_file.sql
SELECT f.format,
       pg_catalog.pg_current_logfile(f.format) AS path
  FROM pg_catalog.unnest(:'formats'::text[]) WITH ORDINALITY AS f (format, number)
 WHERE pg_catalog.pg_current_logfile(f.format) IS NOT NULL
 ORDER BY f.number
 LIMIT 1;
