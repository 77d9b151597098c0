-- column_types.sql: the columns of a table
-- returns (name, number, type_oid); needs no privilege; PostgreSQL 14+
-- psql -v oid=1247 -f column_types.sql
SELECT attname::text AS name,
       attnum::int4 AS number,
       atttypid AS type_oid
  FROM pg_catalog.pg_attribute
 WHERE attrelid = :'oid'
   AND attnum > 0
   AND NOT attisdropped;
