-- log_end.sql: the end of a file of the server, and whether the file is longer
-- returns (bytes, is_longer); needs EXECUTE on pg_stat_file(text) and pg_read_binary_file(text, bigint,
--    bigint); PostgreSQL 14+
-- psql -v path=PG_VERSION -v most=100 -f log_end.sql
SELECT pg_catalog.pg_read_binary_file(:'path', greatest(s.size - :'most', 0), :'most') AS bytes,
       s.size > :'most' AS is_longer
  FROM pg_catalog.pg_stat_file(:'path') AS s;
