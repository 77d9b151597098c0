-- made_table.sql: a table by its oid, and whether a load of a role can have created it beside a target
-- returns (schema, name, owner, is_own, is_beside_target); needs no privilege; PostgreSQL 14+
-- psql -v role=postgres -v target=1247 -v oid=1247 -f made_table.sql
SELECT n.nspname AS schema,
       c.relname AS name,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       c.relkind IN ('r', 'p')
       AND EXISTS (
               SELECT
                 FROM pg_catalog.pg_roles AS r
                WHERE r.rolname = coalesce(:'role'::name, CURRENT_USER)
                  AND pg_catalog.pg_has_role(r.oid, c.relowner, 'MEMBER')
           ) AS is_own,
       coalesce(
           (SELECT t.relnamespace = c.relnamespace FROM pg_catalog.pg_class AS t WHERE t.oid = :'target'), true
       ) AS is_beside_target
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = :'oid';
