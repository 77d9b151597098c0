-- server.sql: this server, this database, and how many connections this role could still open
-- returns core.catalogue.catalog.ServerRow; needs no privilege; PostgreSQL 14+
-- psql -f server.sql
--
-- An ordinary user sees in pg_stat_activity that a backend exists and its user, but not its kind. A backend whose kind
-- is hidden counts as a client if it has a database and a user, so free_connections may be too low, but not too high.
WITH backends AS (
    SELECT a.datid,
           a.usesysid
      FROM pg_catalog.pg_stat_activity AS a
     WHERE a.backend_type = 'client backend'
        OR (a.backend_type IS NULL AND a.datid IS NOT NULL AND a.usesysid IS NOT NULL)
),
room AS (
    -- reserved_connections exists since PostgreSQL 16
    SELECT pg_catalog.current_setting('max_connections')::int
           - pg_catalog.current_setting('superuser_reserved_connections')::int
           - COALESCE(pg_catalog.current_setting('reserved_connections', true), '0')::int
           - (SELECT pg_catalog.count(*) FROM backends) AS connections
    UNION ALL
    SELECT r.rolconnlimit - (SELECT pg_catalog.count(*) FROM backends AS b WHERE b.usesysid = r.oid)
      FROM pg_catalog.pg_roles AS r
     WHERE r.rolname = SESSION_USER
       AND r.rolconnlimit >= 0
       AND NOT r.rolsuper
    UNION ALL
    SELECT d.datconnlimit - (SELECT pg_catalog.count(*) FROM backends AS b WHERE b.datid = d.oid)
      FROM pg_catalog.pg_database AS d
     WHERE d.datname = pg_catalog.current_database()
       AND d.datconnlimit >= 0
)
SELECT pg_catalog.current_setting('server_version_num')::int AS version_num,
       pg_catalog.current_setting('server_version') AS version,
       pg_catalog.current_database()::text AS database,
       CURRENT_USER::text AS "user",
       pg_catalog.current_setting('server_encoding') AS server_encoding,
       GREATEST(0, (SELECT pg_catalog.min(room.connections) FROM room))::int AS free_connections,
       pg_catalog.pg_is_in_recovery() AS is_in_recovery,
       pg_catalog.host(pg_catalog.inet_server_addr()) AS server_address,
       -- pg_checkpoint exists since PostgreSQL 15; before, CHECKPOINT needs a superuser
       EXISTS (
           SELECT
             FROM pg_catalog.pg_roles AS r
            WHERE (r.rolsuper AND r.rolname = CURRENT_USER)
               OR (r.rolname = 'pg_checkpoint' AND pg_catalog.pg_has_role(r.oid, 'USAGE'))
       ) AS may_checkpoint,
       pg_catalog.to_regproc('pg_catalog.aurora_version') IS NOT NULL AS is_aurora,
       pg_catalog.current_setting('wal_level') AS wal_level,
       -- AWS's ODBC driver recognizes Limitless by limitless_subclusters. The guide of DSQL names the other relation
       (
           SELECT pg_catalog.min(CASE n.nspname WHEN 'sys' THEN 'dsql' ELSE 'limitless' END)
             FROM pg_catalog.pg_class AS c
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
            WHERE (n.nspname = 'rds_aurora' AND c.relname = 'limitless_subclusters')
               OR (n.nspname = 'sys' AND c.relname = 'iam_pg_role_mappings')
       ) AS distributed;
