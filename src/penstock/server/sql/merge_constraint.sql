-- merge_constraint.sql: what a CHECK or foreign key asks of a row
-- returns merge.merge_locate.ConstraintRow; needs no privilege; PostgreSQL 14+
-- psql -v schema=public -v table=t -v constraint=c -f merge_constraint.sql
--
-- A foreign key to its own table is left out: the rows it asks for may be among those that are being stored.
SELECT k.contype::text AS kind,
       pg_catalog.pg_get_expr(k.conbin, k.conrelid) AS expression,
       ARRAY(
           SELECT a.attname::text
             FROM pg_catalog.unnest(k.conkey) WITH ORDINALITY AS u (number, position)
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number
            ORDER BY u.position
       ) AS columns,
       rn.nspname::text AS referenced_schema,
       r.relname::text AS referenced_table,
       ARRAY(
           SELECT a.attname::text
             FROM pg_catalog.unnest(k.confkey) WITH ORDINALITY AS u (number, position)
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.number
            ORDER BY u.position
       ) AS referenced_columns
  FROM pg_catalog.pg_constraint AS k
  JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_class AS r ON r.oid = k.confrelid
  LEFT JOIN pg_catalog.pg_namespace AS rn ON rn.oid = r.relnamespace
 WHERE n.nspname = :'schema'::text
   AND c.relname = :'table'::text
   AND k.conname = :'constraint'::text
   AND (
           k.contype = 'c'
           OR (
                  k.contype = 'f'
                  AND k.confrelid <> k.conrelid
                  AND k.confrelid NOT IN (SELECT p.relid::oid FROM pg_catalog.pg_partition_ancestors(k.conrelid) AS p)
              )
       );
