-- databases_in.sql: the databases that may have objects in a tablespace
-- returns (database, is_default, can_connect); needs no privilege; PostgreSQL 14+
-- psql -v oid=1663 -f databases_in.sql
SELECT d.datname::text AS database,
       d.dattablespace = :'oid'::oid AS is_default,
       d.datallowconn AS can_connect
  FROM pg_catalog.pg_database AS d
 WHERE d.dattablespace = :'oid'::oid
    OR d.oid IN (SELECT u.oid FROM pg_catalog.pg_tablespace_databases(:'oid'::oid) AS u (oid))
    OR EXISTS (
           SELECT
             FROM pg_catalog.pg_shdepend AS s
            WHERE s.dbid = d.oid
              AND s.refclassid = 'pg_catalog.pg_tablespace'::pg_catalog.regclass
              AND s.refobjid = :'oid'::oid
       )
 ORDER BY d.datname;
