-- violated_key.sql: by what a unique index holds two rows for the same
-- returns violations.KeyPart; needs no privilege; PostgreSQL 14+
-- psql -v oid=2662 -f violated_key.sql
--
-- Needs penstock's own search_path: names are qualified. Strategy 3 of a btree operator class is = (stratnum.h). The
-- collation is null for types without one; the condition is that of a partial index.
SELECT pg_catalog.pg_get_indexdef(i.indexrelid, k.position + 1, false) AS expression,
       ln.nspname::text AS collation_schema,
       l.collname::text AS collation,
       n.nspname::text AS equal_schema,
       o.oprname::text AS equal,
       pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS condition
  FROM pg_catalog.pg_index AS i
 CROSS JOIN LATERAL pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (position)
  JOIN pg_catalog.pg_opclass AS f ON f.oid = i.indclass[k.position]
  JOIN pg_catalog.pg_amop AS p
    ON p.amopfamily = f.opcfamily
   AND p.amoplefttype = f.opcintype
   AND p.amoprighttype = f.opcintype
   AND p.amopstrategy = 3
  JOIN pg_catalog.pg_operator AS o ON o.oid = p.amopopr
  JOIN pg_catalog.pg_namespace AS n ON n.oid = o.oprnamespace
  LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = i.indcollation[k.position]
  LEFT JOIN pg_catalog.pg_namespace AS ln ON ln.oid = l.collnamespace
 WHERE i.indexrelid = :'oid'::oid
 ORDER BY k.position;
