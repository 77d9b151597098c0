-- columns.sql: the columns of a table, in order, each with the sequence it owns, and the default's sequence if denied
-- returns core.values.table.Column; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f columns.sql
--
-- A partition's identity or serial column uses the sequence of the root of its tree. If a column owns several
-- sequences, the identity's (deptype i) takes precedence over those of ALTER SEQUENCE ... OWNED BY.
--
-- The base type is the type without its domains, which may be over other domains. Of an array, its elements' domains are
-- removed, too.
WITH RECURSIVE types (number, oid, modifier, is_array, depth) AS (
    SELECT attnum, atttypid, atttypmod, false, 0
      FROM pg_catalog.pg_attribute
     WHERE attrelid = :'oid'::oid
     UNION ALL
    SELECT y.number,
           CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
           CASE t.typtype WHEN 'd' THEN t.typtypmod ELSE y.modifier END,
           y.is_array OR t.typtype <> 'd',
           y.depth + 1
      FROM types AS y
      JOIN pg_catalog.pg_type AS t ON t.oid = y.oid
     WHERE t.typtype = 'd'
        OR t.typinput = 'pg_catalog.array_in'::regproc
),
bases AS (
    SELECT DISTINCT ON (number) * FROM types ORDER BY number, depth DESC
)
SELECT a.attname::text AS name,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type_name,
       a.attnotnull AS is_not_null,
       a.attgenerated <> '' AS is_generated,
       a.atthasdef AND a.attgenerated = '' AS has_default,
       a.attidentity::text AS identity,
       (
           SELECT pg_catalog.format('%I.%I', n.nspname, s.relname)
             FROM pg_catalog.pg_attribute AS o
             JOIN pg_catalog.pg_depend AS d
               ON d.refclassid = 'pg_catalog.pg_class'::regclass
              AND d.refobjid = o.attrelid
              AND d.refobjsubid = o.attnum
              AND d.classid = 'pg_catalog.pg_class'::regclass
              AND d.deptype IN ('a', 'i')
             JOIN pg_catalog.pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
             JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
            WHERE o.attrelid IN (a.attrelid, pg_catalog.pg_partition_root(a.attrelid))
              AND o.attname = a.attname
            ORDER BY d.deptype DESC,
                     n.nspname,
                     s.relname
            LIMIT 1
       ) AS sequence,
       (
           SELECT pg_catalog.format('%I.%I', n.nspname, s.relname)
             FROM pg_catalog.pg_attrdef AS f
             JOIN pg_catalog.pg_depend AS d
               ON d.classid = 'pg_catalog.pg_attrdef'::regclass
              AND d.objid = f.oid
              AND d.refclassid = 'pg_catalog.pg_class'::regclass
             JOIN pg_catalog.pg_class AS s ON s.oid = d.refobjid AND s.relkind = 'S'
             JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
            WHERE f.adrelid = a.attrelid
              AND f.adnum = a.attnum
              -- has_sequence_privilege fails for a relation that is not a sequence. Only CASE evaluates the check of
              -- the kind first.
              AND CASE s.relkind WHEN 'S' THEN NOT pg_catalog.has_sequence_privilege(s.oid, 'USAGE, UPDATE') END
            ORDER BY n.nspname,
                     s.relname
            LIMIT 1
       ) AS denied_sequence,
       a.attnum AS number,
       a.atttypid AS type_oid,
       a.atttypmod AS type_modifier,
       t.typtype = 'd' AS is_domain,
       pg_catalog.format_type(b.oid, b.modifier) || CASE WHEN b.is_array THEN '[]' ELSE '' END AS base_name,
       CASE WHEN b.is_array THEN e.typarray ELSE b.oid END AS base_oid,
       b.modifier AS base_modifier,
       -- A domain has the output function of its base type.
       t.typoutput IN ('pg_catalog.json_out'::regproc, 'pg_catalog.jsonb_out'::regproc) AS is_json
  FROM pg_catalog.pg_attribute AS a
  JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
  JOIN bases AS b ON b.number = a.attnum
  JOIN pg_catalog.pg_type AS e ON e.oid = b.oid
 WHERE a.attrelid = :'oid'::oid
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum;
