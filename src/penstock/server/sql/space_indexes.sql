-- space_indexes.sql: the indexes that each of a table's rows goes into
-- returns model.space.IndexSpace; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f space_indexes.sql
SELECT c.relname::text AS name,
       m.amname::text AS method,
       ARRAY(
           SELECT a.attname::text
             FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)
             LEFT JOIN pg_catalog.pg_attribute AS a
               ON a.attrelid = i.indrelid
              AND a.attnum = k.number
              AND k.number > 0
            ORDER BY k.place
       ) AS columns
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c
    ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_am AS m
    ON m.oid = c.relam
 WHERE i.indrelid = :'oid'::oid
   AND i.indislive
 ORDER BY c.relname;
