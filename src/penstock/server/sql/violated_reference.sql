-- violated_reference.sql: which columns a foreign key compares with which, and by what
-- returns violations.ReferencePart; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v name=x -f violated_reference.sql
--
-- `equal` takes the referenced column on its left; `same` compares two values of the referring one. `has_parts`: the
-- referenced table is a partitioned one.
SELECT a.attname::text AS column,
       fn.nspname::text AS referenced_schema,
       f.relname::text AS referenced_table,
       b.attname::text AS referenced_column,
       en.nspname::text AS equal_schema,
       e.oprname::text AS equal,
       sn.nspname::text AS same_schema,
       s.oprname::text AS same,
       k.conrelid = k.confrelid AS is_self_reference,
       f.relkind = 'p' AS has_parts
  FROM pg_catalog.pg_constraint AS k
  JOIN pg_catalog.pg_class AS f ON f.oid = k.confrelid
  JOIN pg_catalog.pg_namespace AS fn ON fn.oid = f.relnamespace
 CROSS JOIN LATERAL pg_catalog.generate_subscripts(k.conkey, 1) AS u (position)
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[u.position]
  JOIN pg_catalog.pg_attribute AS b ON b.attrelid = k.confrelid AND b.attnum = k.confkey[u.position]
  JOIN pg_catalog.pg_operator AS e ON e.oid = k.conpfeqop[u.position]
  JOIN pg_catalog.pg_namespace AS en ON en.oid = e.oprnamespace
  JOIN pg_catalog.pg_operator AS s ON s.oid = k.conffeqop[u.position]
  JOIN pg_catalog.pg_namespace AS sn ON sn.oid = s.oprnamespace
 WHERE k.contype = 'f'
   AND k.conrelid = :'oid'::oid
   AND k.conname = :'name'
 ORDER BY u.position;
