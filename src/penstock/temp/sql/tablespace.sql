-- tablespace.sql: a tablespace, its directory, and the login roles that may not create in it
-- returns temp.place.kind.TablespaceRow; needs no privilege; PostgreSQL 14+
-- psql -v name=pg_default -f tablespace.sql
SELECT t.oid::int8 AS oid,
       pg_catalog.pg_tablespace_location(t.oid) AS location,
       ARRAY(
           SELECT r.rolname::text
             FROM pg_catalog.pg_roles AS r
            WHERE r.rolcanlogin
              AND NOT pg_catalog.has_tablespace_privilege(r.oid, t.oid, 'CREATE')
            ORDER BY r.rolname
       ) AS excluded
  FROM pg_catalog.pg_tablespace AS t
 WHERE t.spcname = :'name'::text;
