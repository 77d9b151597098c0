-- sorting_checks.sql: a table's CHECK constraints that can be looked at before a row is stored
-- returns sorting_suspects.SortingCheck; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f sorting_checks.sql
--
-- Left out are those on columns that the server computes, on the whole row, or by a function that may do anything.
SELECT pg_catalog.pg_get_expr(n.conbin, n.conrelid) AS expression,
       ARRAY(
           SELECT a.attname::text
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = n.conrelid
              AND a.attnum = ANY (n.conkey)
       ) AS columns
  FROM pg_catalog.pg_constraint AS n
 WHERE n.conrelid = :'oid'::oid
   AND n.contype = 'c'
   AND 0 < ALL (n.conkey)
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = n.conrelid
              AND a.attnum = ANY (n.conkey)
              AND a.attgenerated <> ''
       )
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_depend AS d
             JOIN pg_catalog.pg_proc AS p ON p.oid = d.refobjid
            WHERE d.classid = 'pg_catalog.pg_constraint'::regclass
              AND d.objid = n.oid
              AND d.refclassid = 'pg_catalog.pg_proc'::regclass
              AND p.provolatile = 'v'
       )
 ORDER BY n.conname;
