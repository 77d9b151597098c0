-- key_columns.sql: the columns of a foreign key's two tables, and whether the referenced table still has this name
-- returns (name, type, is_same); needs no privilege; PostgreSQL 14+
-- psql -v references=pg_catalog.pg_class -v oid=1259 -v relation=1247 -f key_columns.sql
SELECT pg_catalog.format('%s.%I', a.attrelid, a.attname) AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       pg_catalog.to_regclass(:'references')::oid = :'oid' AS is_same
  FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid IN (:'relation', :'oid')
   AND a.attnum > 0
   AND NOT a.attisdropped;
