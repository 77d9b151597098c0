-- landing_grants.sql: the roles other than the owner with privileges on a table or the sequences of its columns
-- returns core.catalogue.staging.GrantRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f landing_grants.sql
--
-- A new table has such privileges by ALTER DEFAULT PRIVILEGES. The grantee is null for PUBLIC.
SELECT c.relkind::text AS kind,
       n.nspname::text AS schema,
       c.relname::text AS name,
       r.rolname::text AS grantee
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS g
  LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
 WHERE g.grantee <> c.relowner
   AND (
           c.oid = :'oid'::oid
           OR c.oid IN (
                  SELECT d.objid
                    FROM pg_catalog.pg_depend AS d
                   WHERE d.classid = 'pg_catalog.pg_class'::regclass
                     AND d.refclassid = 'pg_catalog.pg_class'::regclass
                     AND d.refobjid = :'oid'::oid
                     AND d.deptype = 'i'
              )
       )
 GROUP BY c.relkind,
          n.nspname,
          c.relname,
          r.rolname
 ORDER BY c.relkind,
          r.rolname;
