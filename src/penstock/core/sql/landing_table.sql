-- landing_table.sql: a staging table by its name, and whether somebody could have altered it
-- returns core.catalogue.staging.LandingTable; needs no privilege; PostgreSQL 14+
-- psql -v schema=public -v name=t -f landing_table.sql
--
-- `has_code` covers everything that could run somebody's code when rows are stored or deleted: triggers, rules,
-- policies.
SELECT c.oid,
       n.nspname::text AS schema,
       c.relname::text AS name,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       c.relowner = (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = CURRENT_USER) AS is_own,
       c.relkind = 'r' AND c.relpersistence = 'p' AND NOT c.relispartition AS is_logged_table,
       c.relhasrules
       OR c.relrowsecurity
       OR EXISTS (SELECT FROM pg_catalog.pg_trigger AS g WHERE g.tgrelid = c.oid) AS has_code,
       ARRAY(
           SELECT a.attname::text
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = c.oid
              AND a.attnum > 0
              AND NOT a.attisdropped
            ORDER BY a.attnum
       ) AS columns
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = :'schema'::text
   AND c.relname = :'name'::text
   AND c.relkind <> 'i';
