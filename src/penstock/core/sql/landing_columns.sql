-- landing_columns.sql: the columns of a table with everything that determines a value: type, modifier, collation
-- returns core.catalogue.staging.ColumnType; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f landing_columns.sql
--
-- The collation is null if it is the type's default.
SELECT a.attname::text AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type_name,
       n.nspname::text AS collation_schema,
       l.collname::text AS collation
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation AND l.oid <> t.typcollation
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = l.collnamespace
 WHERE a.attrelid = :'oid'::oid
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum;
