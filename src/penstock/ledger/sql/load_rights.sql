-- load_rights.sql: the owner of a load, and how this session's login relates to the load
-- returns ledger.rights.LoadRights; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f load_rights.sql
SELECT l.id::text AS load_id,
       l.owner::text,
       l.owner = CURRENT_USER AS is_own_role,
       coalesce(l.login = SESSION_USER, false) AS is_own_login,
       l.owner = SESSION_USER AS is_logins,
       coalesce(
           (SELECT pg_catalog.pg_has_role(r.oid, 'MEMBER') FROM pg_catalog.pg_roles AS r
             WHERE r.rolname = l.owner),
           false
       ) AS is_member,
       EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = l.owner) AS has_role,
       (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = SESSION_USER) AS is_superuser
  FROM ONLY :"ledger".loads AS l
 WHERE l.id = :'load';
