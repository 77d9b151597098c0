-- connections.sql: how many connections are allowed and used
-- returns core.values.inspection.Connections; needs no privilege; PostgreSQL 14+
-- psql -f connections.sql
--
-- A backend whose kind is hidden, with a database and a user, counts as a client, as in server.sql.
SELECT pg_catalog.current_setting('max_connections')::int AS maximum,
       -- reserved_connections came with PostgreSQL 16
       pg_catalog.current_setting('superuser_reserved_connections')::int
       + COALESCE(pg_catalog.current_setting('reserved_connections', true), '0')::int AS reserved,
       (
           SELECT pg_catalog.count(*)::int
             FROM pg_catalog.pg_stat_activity AS a
            WHERE a.backend_type = 'client backend'
               OR (a.backend_type IS NULL AND a.datid IS NOT NULL AND a.usesysid IS NOT NULL)
       ) AS used,
       NULLIF(r.rolconnlimit, -1) AS role_limit,
       NULLIF(d.datconnlimit, -1) AS database_limit
  FROM pg_catalog.pg_roles AS r,
       pg_catalog.pg_database AS d
 WHERE r.rolname = SESSION_USER
   AND d.datname = pg_catalog.current_database();
