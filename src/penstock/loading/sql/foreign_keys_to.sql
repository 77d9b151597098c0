-- foreign_keys_to.sql: the foreign keys by which deleting rows of a table is refused, or changes other rows
-- returns loading.land.cascades.ForeignKeyRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f foreign_keys_to.sql
--
-- The keys that refer to the table, to its partitions or to its parents; and those that refer to a table from which ON
-- DELETE CASCADE deletes. The copies that partitions have of a key are not returned. A key that is NOT ENFORCED
-- (PostgreSQL 18) does nothing.
WITH RECURSIVE enforced AS (
    SELECT k.*
      FROM pg_catalog.pg_constraint AS k
     WHERE k.contype = 'f'
       AND k.conparentid = 0
       AND COALESCE((pg_catalog.to_jsonb(k) ->> 'conenforced')::bool, true)
),
reached AS (
    SELECT :'oid'::oid AS oid,
           true AS is_root
    UNION
    SELECT k.conrelid,
           false
      FROM reached AS r
     CROSS JOIN LATERAL (
           SELECT r.oid
           UNION
           SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(r.oid) AS p
           UNION
           SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(r.oid) AS a
       ) AS line (oid)
      JOIN enforced AS k ON k.confrelid = line.oid
     WHERE k.confdeltype = 'c'
)
SELECT k.conname::text AS name,
       k.confdeltype::text AS action,
       pg_catalog.bool_or(r.is_root) AS is_direct,
       k.conrelid AS oid,
       n1.nspname::text AS schema,
       c1.relname::text AS table,
       c1.relkind = 'r' AS is_plain,
       k.confrelid AS referenced_oid,
       n2.nspname::text AS referenced_schema,
       c2.relname::text AS referenced_table,
       c2.relkind = 'r' AS is_referenced_plain,
       ARRAY(
           SELECT a.attname::text
             FROM pg_catalog.unnest(k.conkey) WITH ORDINALITY AS u (number, position)
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number
            ORDER BY u.position
       ) AS columns,
       ARRAY(
           SELECT a.attname::text
             FROM pg_catalog.unnest(k.confkey) WITH ORDINALITY AS u (number, position)
             JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.number
            ORDER BY u.position
       ) AS referenced_columns,
       ARRAY(
           SELECT pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname)
             FROM pg_catalog.unnest(k.conpfeqop) WITH ORDINALITY AS u (oid, position)
             JOIN pg_catalog.pg_operator AS o ON o.oid = u.oid
             JOIN pg_catalog.pg_namespace AS n ON n.oid = o.oprnamespace
            ORDER BY u.position
       ) AS operators,
       ARRAY(
           SELECT c1.oid
           UNION
           SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(c1.oid) AS p
           UNION
           SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(c1.oid) AS a
       )::int8[] AS line
  FROM reached AS r
 CROSS JOIN LATERAL (
       SELECT r.oid
       UNION
       SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(r.oid) AS p
       UNION
       SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(r.oid) AS a
   ) AS line (oid)
  JOIN enforced AS k ON k.confrelid = line.oid
  JOIN pg_catalog.pg_class AS c1 ON c1.oid = k.conrelid
  JOIN pg_catalog.pg_namespace AS n1 ON n1.oid = c1.relnamespace
  JOIN pg_catalog.pg_class AS c2 ON c2.oid = k.confrelid
  JOIN pg_catalog.pg_namespace AS n2 ON n2.oid = c2.relnamespace
 GROUP BY k.oid,
          k.conname,
          k.confdeltype,
          k.conkey,
          k.confkey,
          k.conpfeqop,
          k.conrelid,
          k.confrelid,
          c1.oid,
          c1.relname,
          c1.relkind,
          n1.nspname,
          c2.relname,
          c2.relkind,
          n2.nspname
 ORDER BY n1.nspname,
          c1.relname,
          k.conname;
