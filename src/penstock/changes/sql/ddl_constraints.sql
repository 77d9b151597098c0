-- ddl_constraints.sql: the constraints of a table; `definition` is the text after ADD CONSTRAINT name
-- returns changes.tables.definition.ConstraintRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_constraints.sql
--
-- Needs penstock's own search_path. NOT NULL is a constraint only since PostgreSQL 18. Columns that only later versions
-- have are read through JSON. A foreign key to a partitioned table has a row of its own for each partition of that
-- table, which the server makes.
WITH own AS (
    SELECT k.*,
           COALESCE((pg_catalog.to_jsonb(k) ->> 'conperiod')::bool, false) AS is_temporal,
           COALESCE((pg_catalog.to_jsonb(k) ->> 'conenforced')::bool, true) AS is_enforced
      FROM pg_catalog.pg_constraint AS k
     WHERE k.conrelid = :'oid'::oid
       AND k.contype <> 't'
       AND NOT EXISTS (
               SELECT FROM pg_catalog.pg_constraint AS p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid
           )
)
SELECT k.conname::text AS name,
       k.contype::text AS kind,
       pg_catalog.pg_get_constraintdef(k.oid) AS definition,
       k.condeferrable AS is_deferrable,
       k.condeferred AS is_deferred,
       k.convalidated AS is_validated,
       k.is_enforced,
       k.is_temporal,
       pg_catalog.obj_description(k.oid, 'pg_constraint') AS comment
  FROM own AS k
 ORDER BY k.contype,
          k.conname;
