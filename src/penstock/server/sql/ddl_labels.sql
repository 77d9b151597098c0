-- ddl_labels.sql: the security labels of a table and its columns
-- returns ddl.definition.LabelRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_labels.sql
SELECT l.provider,
       a.attname::text AS "column",
       l.label
  FROM pg_catalog.pg_seclabel AS l
  LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = l.objoid AND a.attnum = l.objsubid AND l.objsubid <> 0
 WHERE l.classoid = 'pg_catalog.pg_class'::regclass
   AND l.objoid = :'oid'::oid
 ORDER BY l.provider,
          l.objsubid;
