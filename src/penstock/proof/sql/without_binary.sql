-- without_binary.sql: the columns of a table whose values have no binary output, with the type that lacks it
-- returns (name, type_name); needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f without_binary.sql
--
-- Arrays, composite types, domains and ranges have a binary output, and fail if a type that they are made of has none.
WITH RECURSIVE parts (name, oid) AS (
    SELECT a.attname, a.atttypid
      FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid = :'oid'::oid
       AND a.attnum > 0
       AND NOT a.attisdropped
     UNION
    SELECT p.name, e.oid
      FROM parts AS p
      JOIN pg_catalog.pg_type AS t ON t.oid = p.oid
     CROSS JOIN LATERAL (
               SELECT t.typbasetype
                UNION ALL
               SELECT t.typelem
                UNION ALL
               SELECT a.atttypid
                 FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = t.typrelid
                  AND a.attnum > 0
                  AND NOT a.attisdropped
                UNION ALL
               SELECT r.rngsubtype
                 FROM pg_catalog.pg_range AS r
                WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
           ) AS e (oid)
)
SELECT p.name::text AS name,
       pg_catalog.format_type(t.oid, NULL) AS type_name
  FROM parts AS p
  JOIN pg_catalog.pg_type AS t ON t.oid = p.oid
 WHERE t.typsend::oid = 0
 ORDER BY 1, 2;
