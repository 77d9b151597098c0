-- iam_role.sql: whether a role exists, and whether it may log in with tokens of IAM database authentication
-- returns inspect.iam_role.IamRole; needs no privilege; PostgreSQL 14+
-- psql -v user=app -f iam_role.sql
SELECT pg_catalog.count(named.oid) > 0 AS is_there,
       pg_catalog.count(rds.oid) > 0 AS is_rds,
       COALESCE(pg_catalog.bool_or(pg_catalog.pg_has_role(named.oid, rds.oid, 'MEMBER')), false) AS is_member
  FROM (SELECT :'user'::name AS rolname) AS asked
  LEFT JOIN pg_catalog.pg_roles AS named ON named.rolname = asked.rolname
  LEFT JOIN pg_catalog.pg_roles AS rds ON rds.rolname = 'rds_iam';
