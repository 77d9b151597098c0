-- ddl_columns.sql: the columns of a table, in order, as CREATE TABLE and ALTER COLUMN would say them
-- returns ddl.definition.ColumnRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_columns.sql
--
-- What is as the type has it (collation, storage) or as the server would choose it (compression, statistics target:
-- -1 before PostgreSQL 17, null since) is null. Minor versions of November 2026 (15.20) keep a mark of their own among
-- the options, pg_attver, which pg_dump does not see.
SELECT a.attname::text AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type_name,
       CASE WHEN a.attcollation <> t.typcollation THEN pg_catalog.format('%I.%I', n.nspname, l.collname) END AS collation,
       a.attnotnull AS is_not_null,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS expression,
       a.attgenerated::text AS generated,
       a.attidentity::text AS identity,
       NULLIF(a.attstorage, t.typstorage)::text AS storage,
       NULLIF(a.attcompression::text, '') AS compression,
       NULLIF(a.attstattarget, -1)::int AS statistics_target,
       ARRAY(
           SELECT o.option
             FROM pg_catalog.unnest(a.attoptions) WITH ORDINALITY AS o (option, position)
            WHERE NOT pg_catalog.starts_with(o.option, 'pg_attver=')
            ORDER BY o.position
       ) AS options,
       pg_catalog.col_description(a.attrelid, a.attnum) AS comment
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
  LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = l.collnamespace
  LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = :'oid'::oid
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum;
