-- merge_key_columns.sql: the operators and collations by which a unique index compares each of its columns
-- returns loading.land.merge_key.KeyColumn; needs no privilege; PostgreSQL 14+
-- psql -v oid=2662 -f merge_key_columns.sql
--
-- Strategies 1 and 3 of a btree operator class are < and = (stratnum.h). The collation is null for types without one.
-- From PostgreSQL 18 on, a NOT NULL constraint may be NOT VALID; attnotnull is true then, too.
SELECT a.attname::text AS name,
       a.attnotnull AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_constraint AS c
            WHERE c.conrelid = i.indrelid
              AND c.contype = 'n'
              AND NOT c.convalidated
              AND a.attnum = ANY (c.conkey)
       ) AS is_not_null,
       ln.nspname::text AS collation_schema,
       l.collname::text AS collation,
       fn.nspname::text AS class_schema,
       f.opcname::text AS operator_class,
       n1.nspname::text AS less_schema,
       o1.oprname::text AS less,
       n3.nspname::text AS equal_schema,
       o3.oprname::text AS equal
  FROM pg_catalog.pg_index AS i
 CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (position)
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.position]
  JOIN pg_catalog.pg_opclass AS f ON f.oid = i.indclass[k.position]
  JOIN pg_catalog.pg_namespace AS fn ON fn.oid = f.opcnamespace
  JOIN pg_catalog.pg_amop AS p1
    ON p1.amopfamily = f.opcfamily
   AND p1.amoplefttype = f.opcintype
   AND p1.amoprighttype = f.opcintype
   AND p1.amopstrategy = 1
  JOIN pg_catalog.pg_operator AS o1 ON o1.oid = p1.amopopr
  JOIN pg_catalog.pg_namespace AS n1 ON n1.oid = o1.oprnamespace
  JOIN pg_catalog.pg_amop AS p3
    ON p3.amopfamily = f.opcfamily
   AND p3.amoplefttype = f.opcintype
   AND p3.amoprighttype = f.opcintype
   AND p3.amopstrategy = 3
  JOIN pg_catalog.pg_operator AS o3 ON o3.oid = p3.amopopr
  JOIN pg_catalog.pg_namespace AS n3 ON n3.oid = o3.oprnamespace
  LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = i.indcollation[k.position]
  LEFT JOIN pg_catalog.pg_namespace AS ln ON ln.oid = l.collnamespace
 WHERE i.indexrelid = :'oid'::oid
 ORDER BY k.position;
