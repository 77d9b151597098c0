-- relation_name.sql: the name of a relation
-- returns core.sql.NameRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1247 -f relation_name.sql
SELECT pg_catalog.format('%s.%s', n.nspname, c.relname) AS name
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = :'oid';
