-- server_line.sql: the value of a setting in postgresql.auto.conf, which ALTER SYSTEM writes
-- returns (setting); needs a superuser; PostgreSQL 14+
-- psql -v setting=temp_tablespaces -f server_line.sql
SELECT f.setting
  FROM pg_catalog.pg_file_settings AS f
 WHERE f.name = :'setting'
   AND f.sourcefile = pg_catalog.current_setting('data_directory') || '/postgresql.auto.conf'
 ORDER BY f.seqno DESC
 LIMIT 1;
