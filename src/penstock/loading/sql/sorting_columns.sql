-- sorting_columns.sql: the columns of a table, and how to convert text to each one's values as COPY does
-- returns loading.rejects.sorting.SortingColumn; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f sorting_columns.sql
--
-- A cast from text calls the type's input function, except for types with a cast of their own, a modifier (the cast
-- would truncate values or apply it too late) or a domain. Those values are read as fields of a composite type.
SELECT a.attname::text AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type_name,
       CASE
           WHEN a.atttypmod = -1 AND a.atttypid IN ('pg_catalog.text'::regtype, 'pg_catalog.varchar'::regtype) THEN 'text'
           WHEN a.atttypmod = -1
            AND t.typtype <> 'd'
            AND NOT EXISTS (
                    SELECT
                      FROM pg_catalog.pg_cast AS c
                     WHERE c.castsource = 'pg_catalog.text'::regtype
                       AND c.casttarget = a.atttypid
                ) THEN 'cast'
           ELSE 'record'
       END AS reading
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
 WHERE a.attrelid = :'oid'::oid
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum;
