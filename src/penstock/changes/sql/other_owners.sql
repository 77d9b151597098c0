-- other_owners.sql: those of the given roles of which the current role is not a member
-- returns core.sql.NameRow; needs no privilege; PostgreSQL 14+
-- psql -v owners='{postgres}' -f other_owners.sql
SELECT o.name
  FROM pg_catalog.unnest(:'owners'::text[]) AS o (name)
  LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = o.name
 WHERE r.oid IS NULL
    OR NOT pg_catalog.pg_has_role(r.oid, 'MEMBER');
