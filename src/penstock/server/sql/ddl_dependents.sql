-- ddl_dependents.sql: what depends on a table, its row type, indexes, constraints or identity sequences from outside
-- returns ddl.dependencies.Obstacle; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_dependents.sql
--
-- Needs penstock's own search_path: names are qualified. `own` is all that goes with the table and is made again
-- for its replacement; the sequences of serial columns are kept as they are, so others may use them. A view is named
-- in place of the rule that makes it one. PostgreSQL 14 pins system objects by rows of deptype p.
WITH own_relations AS (
    SELECT c.oid
      FROM pg_catalog.pg_class AS c
     WHERE c.oid = :'oid'::oid
    UNION ALL
    SELECT i.indexrelid
      FROM pg_catalog.pg_index AS i
     WHERE i.indrelid IN (
               SELECT r.oid
                 FROM pg_catalog.pg_class AS c
                CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[c.oid, c.reltoastrelid]) AS r (oid)
                WHERE c.oid = :'oid'::oid
           )
),
sequences AS (
    SELECT d.objid AS oid,
           d.deptype = 'i' AS is_identity
      FROM pg_catalog.pg_depend AS d
      JOIN pg_catalog.pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
     WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjid = :'oid'::oid
       AND d.classid = 'pg_catalog.pg_class'::regclass
       AND d.deptype IN ('a', 'i')
),
own (classid, objid) AS (
    SELECT 'pg_catalog.pg_class'::regclass::oid, o.oid FROM own_relations AS o
    UNION ALL
    SELECT 'pg_catalog.pg_class'::regclass, s.oid FROM sequences AS s WHERE s.is_identity
    UNION ALL
    SELECT 'pg_catalog.pg_class'::regclass, c.reltoastrelid FROM pg_catalog.pg_class AS c WHERE c.oid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_type'::regclass, t.oid FROM pg_catalog.pg_type AS t WHERE t.typrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_type'::regclass, t.typarray FROM pg_catalog.pg_type AS t WHERE t.typrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_constraint'::regclass, k.oid FROM pg_catalog.pg_constraint AS k WHERE k.conrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_trigger'::regclass, g.oid
      FROM pg_catalog.pg_trigger AS g
      LEFT JOIN pg_catalog.pg_constraint AS k ON k.oid = g.tgconstraint
     WHERE g.tgrelid = :'oid'::oid
        OR k.conrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_policy'::regclass, p.oid FROM pg_catalog.pg_policy AS p WHERE p.polrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_rewrite'::regclass, r.oid FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_attrdef'::regclass, d.oid FROM pg_catalog.pg_attrdef AS d WHERE d.adrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_statistic_ext'::regclass, s.oid
      FROM pg_catalog.pg_statistic_ext AS s
     WHERE s.stxrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_publication_rel'::regclass, r.oid
      FROM pg_catalog.pg_publication_rel AS r
     WHERE r.prrelid = :'oid'::oid
),
dependents AS (
    SELECT DISTINCT
           CASE WHEN v.oid IS NULL THEN d.classid ELSE 'pg_catalog.pg_class'::regclass END AS classid,
           COALESCE(v.oid, d.objid) AS objid,
           CASE WHEN v.oid IS NULL THEN d.objsubid ELSE 0 END AS objsubid
      FROM pg_catalog.pg_depend AS d
      JOIN own ON own.classid = d.refclassid AND own.objid = d.refobjid
      LEFT JOIN pg_catalog.pg_rewrite AS r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
      LEFT JOIN pg_catalog.pg_class AS v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm')
     WHERE d.deptype <> 'p'
       AND NOT EXISTS (SELECT FROM own AS o WHERE o.classid = d.classid AND o.objid = d.objid)
       AND NOT (
               d.classid = 'pg_catalog.pg_class'::regclass AND d.objid IN (SELECT s.oid FROM sequences AS s)
           )
)
SELECT i.type AS kind,
       pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) AS description
  FROM dependents AS d
 CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) AS i
 ORDER BY 1,
          2;
