-- state.sql: penstock's schema (name null) and named tables in it, and whether this session can trust the owners
-- returns ledger.schema.LedgerRelation; needs no privilege; PostgreSQL 14+
-- psql -v schema=penstock -v tables='{loads,objects}' -f state.sql
--
-- Code in a session can SET ROLE to every role of which the login role is a member, and RESET ROLE to the login role.
-- `powers` are those of these roles that can do more than read and write tables. A trusted owner does not gain any of
-- these powers by code that runs in the session.
WITH powers AS (
    SELECT r.oid
      FROM pg_catalog.pg_roles AS r
     WHERE (
               r.rolsuper
            OR r.rolcreaterole
            OR r.rolbypassrls
            OR r.rolreplication
            OR r.rolname IN (
                   'rds_superuser', 'cloudsqlsuperuser', 'azure_pg_admin',
                   'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files'
               )
           )
       AND (
               pg_catalog.pg_has_role(SESSION_USER, r.oid, 'MEMBER')
            OR pg_catalog.pg_has_role(CURRENT_USER, r.oid, 'MEMBER')
           )
), trusted AS (
    SELECT r.oid
      FROM pg_catalog.pg_roles AS r
     WHERE r.rolsuper
        OR r.rolname = SESSION_USER
        OR (
               r.rolname = CURRENT_USER
           AND NOT EXISTS (SELECT FROM powers AS p WHERE NOT pg_catalog.pg_has_role(r.oid, p.oid, 'MEMBER'))
           )
        OR (
               r.oid = (SELECT d.datdba FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
           AND NOT EXISTS (SELECT FROM powers)
           )
)
SELECT NULL::text AS name,
       n.oid::bigint AS oid,
       pg_catalog.pg_get_userbyid(n.nspowner)::text AS owner,
       n.nspowner IN (SELECT t.oid FROM trusted AS t) AS is_trusted,
       EXISTS (SELECT FROM powers) AS is_privileged,
       NULL::text AS comment,
       '{}'::text[] AS additions
  FROM pg_catalog.pg_namespace AS n
 WHERE n.nspname = :'schema'::text
UNION ALL
SELECT c.relname::text,
       c.oid::bigint,
       pg_catalog.pg_get_userbyid(c.relowner)::text,
       c.relowner IN (SELECT t.oid FROM trusted AS t),
       EXISTS (SELECT FROM powers),
       pg_catalog.obj_description(c.oid, 'pg_class'),
       ARRAY(
           SELECT 'not a plain table'
            WHERE c.relkind <> 'r'
           UNION
           -- Before PostgreSQL 18, deferred triggers of a referencing table run as the role that commits.
           SELECT CASE
                      WHEN g.tgisinternal
                      THEN pg_catalog.format('foreign key of table %s', o.oid::regclass)
                      ELSE pg_catalog.format('trigger %I', g.tgname)
                  END
             FROM pg_catalog.pg_trigger AS g
             LEFT JOIN pg_catalog.pg_class AS o ON o.oid = g.tgconstrrelid
            WHERE g.tgrelid = c.oid
              AND (NOT g.tgisinternal OR o.relowner NOT IN (SELECT t.oid FROM trusted AS t))
           UNION
           SELECT pg_catalog.format(
                      'privilege %s of %s',
                      p.privilege_type,
                      CASE p.grantee WHEN 0 THEN 'PUBLIC' ELSE p.grantee::regrole::text END
                  )
             FROM (
                      SELECT c.relacl AS acl
                       UNION ALL
                      SELECT a.attacl FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid
                  ) AS g,
                  pg_catalog.aclexplode(g.acl) AS p
            WHERE p.privilege_type IN ('TRIGGER', 'REFERENCES')
              AND p.grantee NOT IN (SELECT t.oid FROM trusted AS t)
              AND EXISTS (SELECT FROM powers)
            ORDER BY 1
       )
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = :'schema'::text
   AND c.relname = ANY (:'tables'::text[]);
