-- space_columns.sql: how a table's columns lie in its rows, in their order
-- returns model.space.ColumnSpace; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f space_columns.sql
SELECT a.attname::text AS name,
       t.typname::text AS type_name,
       a.attlen::int AS length,
       CASE a.attalign
           WHEN 'c' THEN 1
           WHEN 's' THEN 2
           WHEN 'i' THEN 4
           ELSE 8
       END AS alignment
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS t
    ON t.oid = a.atttypid
 WHERE a.attrelid = :'oid'::oid
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum;
