-- ledger.sql: whether the current role could use or create a ledger in a schema
-- returns core.values.server.LedgerRights; needs no privilege; PostgreSQL 14+
-- psql -v schema=penstock -f ledger.sql
--
-- A load reads, inserts, updates and deletes rows of the ledger's tables.
SELECT CURRENT_USER::text AS role,
       pg_catalog.pg_get_userbyid(n.nspowner)::text AS owner,
       CASE
           WHEN n.oid IS NULL
           THEN pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
           ELSE pg_catalog.has_schema_privilege(n.oid, 'CREATE') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
       END AS may_create,
       COALESCE(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false)
       AND NOT EXISTS (
               SELECT
                 FROM pg_catalog.pg_class AS c,
                      pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p (privilege)
                WHERE c.relnamespace = n.oid
                  AND c.relname IN ('changes', 'holds', 'loads', 'objects', 'ranges', 'rejects', 'targets')
                  AND c.relkind = 'r'
                  AND NOT pg_catalog.has_table_privilege(c.oid, p.privilege)
           ) AS may_write,
       pg_catalog.pg_get_userbyid(l.relowner)::text AS tables_owner,
       COALESCE(pg_catalog.pg_has_role(l.relowner, 'MEMBER'), false) AS may_upgrade
  FROM (SELECT) AS one
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = :'schema'::text
  LEFT JOIN pg_catalog.pg_class AS l ON l.relnamespace = n.oid AND l.relname = 'loads' AND l.relkind = 'r';
