-- rights.sql: what the current role may do, each right probed
-- returns core.values.inspection.Rights; needs no privilege; PostgreSQL 14+
-- psql -v creation_schema=public -f rights.sql
--
-- creation_schema is the schema in which the user's search_path creates tables, or null if it has none. pg_has_role is
-- asked for USAGE of predefined roles, as the server itself does. MEMBER would also count roles that must be assumed by
-- SET ROLE first. The role pg_checkpoint came with PostgreSQL 15.
SELECT r.rolsuper AS is_superuser,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE') AS may_create_schema,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY') AS may_make_temporary,
       :'creation_schema'::text AS creation_schema,
       COALESCE(pg_catalog.has_schema_privilege(:'creation_schema'::text, 'CREATE'), false) AS may_create_table,
       pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE') AS reads_statistics,
       pg_catalog.pg_has_role('pg_read_all_settings', 'USAGE') AS reads_settings,
       pg_catalog.pg_has_role('pg_signal_backend', 'USAGE') AS signals_backends,
       r.rolsuper
       OR EXISTS (
              SELECT
                FROM pg_catalog.pg_roles AS c
               WHERE c.rolname = 'pg_checkpoint'
                 AND pg_catalog.pg_has_role(c.oid, 'USAGE')
          ) AS may_checkpoint,
       pg_catalog.has_function_privilege('pg_catalog.pg_reload_conf()', 'EXECUTE') AS may_reload,
       r.rolsuper OR r.rolreplication AS may_replicate,
       r.rolsuper OR r.rolbypassrls AS bypasses_row_security,
       s.rolname::text AS session_user,
       CASE
           WHEN pg_catalog.isfinite(s.rolvaliduntil)
           THEN pg_catalog.date_part('epoch', s.rolvaliduntil - pg_catalog.clock_timestamp())
       END AS password_ends_in_s
  FROM pg_catalog.pg_roles AS r
  JOIN pg_catalog.pg_roles AS s ON s.rolname = SESSION_USER
 WHERE r.rolname = CURRENT_USER;
