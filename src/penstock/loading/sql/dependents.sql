-- dependents.sql: what uses a column of a table or of its partitions, except its default, NOT NULL and its own sequence
-- returns core.sql.NameRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v name=relname -f dependents.sql
SELECT DISTINCT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) AS name
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_depend AS d
    ON d.refclassid = 'pg_catalog.pg_class'::regclass
   AND d.refobjid = a.attrelid
   AND d.refobjsubid = a.attnum
 WHERE a.attname = :'name'::text
   AND NOT a.attisdropped
   AND (a.attrelid = :'oid'::oid
        OR a.attrelid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(:'oid'::oid) AS p))
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_attrdef AS e
            WHERE d.classid = 'pg_catalog.pg_attrdef'::regclass
              AND e.oid = d.objid
              AND e.adnum = a.attnum
       )
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_constraint AS n
            WHERE d.classid = 'pg_catalog.pg_constraint'::regclass
              AND n.oid = d.objid
              AND n.contype = 'n'
       )
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_class AS s
            WHERE d.classid = 'pg_catalog.pg_class'::regclass
              AND s.oid = d.objid
              AND s.relkind = 'S'
       )
 ORDER BY 1;
