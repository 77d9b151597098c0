-- ddl_sequences.sql: the sequences that a table's columns own, by identity or by OWNED BY (serial)
-- returns ddl.definition.SequenceRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_sequences.sql
SELECT s.oid,
       s.relname::text AS name,
       pg_catalog.format('%I.%I', n.nspname, s.relname) AS quoted_name,
       a.attname::text AS "column",
       d.deptype = 'i' AS is_identity,
       pg_catalog.format_type(q.seqtypid, NULL) AS type_name,
       q.seqstart AS start,
       q.seqincrement AS increment,
       q.seqmin AS minimum,
       q.seqmax AS maximum,
       q.seqcache AS cache,
       q.seqcycle AS is_cycled,
       pg_catalog.obj_description(s.oid, 'pg_class') AS comment
  FROM pg_catalog.pg_depend AS d
  JOIN pg_catalog.pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
  JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
  JOIN pg_catalog.pg_sequence AS q ON q.seqrelid = s.oid
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
 WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
   AND d.refobjid = :'oid'::oid
   AND d.classid = 'pg_catalog.pg_class'::regclass
   AND d.deptype IN ('a', 'i')
 ORDER BY s.relname;
