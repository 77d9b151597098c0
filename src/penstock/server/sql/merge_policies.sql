-- merge_policies.sql: what row-level security asks of rows that the current role inserts
-- returns merge.merge_locate.PolicyRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f merge_policies.sql
SELECT p.polpermissive AS is_permissive,
       pg_catalog.pg_get_expr(COALESCE(p.polwithcheck, p.polqual), p.polrelid) AS expression
  FROM pg_catalog.pg_policy AS p
 WHERE p.polrelid = :'oid'::oid
   AND p.polcmd IN ('a', '*')
   AND EXISTS (
           SELECT
             FROM pg_catalog.unnest(p.polroles) AS r (oid)
            WHERE r.oid = 0
               OR pg_catalog.pg_has_role(CURRENT_USER, r.oid, 'USAGE')
       )
 ORDER BY p.polname;
