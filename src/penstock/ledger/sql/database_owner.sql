-- database_owner.sql: the database's owner, and the roles that every role trusts: that owner and the superusers
-- returns (owner, trusted); needs no privilege; PostgreSQL 14+
-- psql -f database_owner.sql
SELECT pg_catalog.pg_get_userbyid(d.datdba)::text AS owner,
       ARRAY(SELECT r.rolname::text FROM pg_catalog.pg_roles AS r WHERE r.rolsuper OR r.oid = d.datdba) AS trusted
  FROM pg_catalog.pg_database AS d
 WHERE d.datname = pg_catalog.current_database();
