-- session.sql: where this session's temporary work goes, and whether it may see that of other sessions
-- returns (temp_tablespaces, block_bytes, is_monitor, denied); needs no privilege; PostgreSQL 14+
-- psql -f session.sql
SELECT pg_catalog.current_setting('temp_tablespaces') AS temp_tablespaces,
       pg_catalog.current_setting('block_size')::int AS block_bytes,
       pg_catalog.pg_has_role(CURRENT_USER, 'pg_monitor', 'USAGE') AS is_monitor,
       ARRAY(
           SELECT t.spcname::text
             FROM pg_catalog.pg_tablespace AS t
             JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()
            WHERE t.spcname <> 'pg_global'
              -- The database's own tablespace needs no privilege.
              AND t.oid <> d.dattablespace
              AND NOT pg_catalog.has_tablespace_privilege(t.oid, 'CREATE')
            ORDER BY t.spcname
       ) AS denied;
