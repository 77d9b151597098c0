-- ddl_policies.sql: the row security policies of a table; the role public stands in `roles` as an empty name
-- returns ddl.definition.PolicyRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_policies.sql
SELECT p.polname::text AS name,
       p.polpermissive AS is_permissive,
       CASE p.polcmd
           WHEN 'r' THEN 'SELECT'
           WHEN 'a' THEN 'INSERT'
           WHEN 'w' THEN 'UPDATE'
           WHEN 'd' THEN 'DELETE'
           ELSE 'ALL'
       END AS command,
       ARRAY(
           SELECT CASE WHEN r.oid = 0 THEN '' ELSE pg_catalog.pg_get_userbyid(r.oid)::text END
             FROM pg_catalog.unnest(p.polroles) AS r (oid)
            ORDER BY 1
       ) AS roles,
       pg_catalog.pg_get_expr(p.polqual, p.polrelid) AS using_expression,
       pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid) AS check_expression,
       pg_catalog.obj_description(p.oid, 'pg_policy') AS comment
  FROM pg_catalog.pg_policy AS p
 WHERE p.polrelid = :'oid'::oid
 ORDER BY p.polname;
