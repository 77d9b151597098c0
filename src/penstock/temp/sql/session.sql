-- session.sql: where this session's temporary work goes, and whether it may see that of other sessions
-- returns (temp_tablespaces, block_bytes, is_monitor); needs no privilege; PostgreSQL 14+
-- psql -f session.sql
SELECT pg_catalog.current_setting('temp_tablespaces') AS temp_tablespaces,
       pg_catalog.current_setting('block_size')::int AS block_bytes,
       pg_catalog.pg_has_role(CURRENT_USER, 'pg_monitor', 'USAGE') AS is_monitor;
