-- ddl_hindrances.sql: what a table is, belongs to or has that a new table in its place could not be given
-- returns ddl.dependencies.Obstacle; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_hindrances.sql
--
-- Needs penstock's own search_path. A whole-row reference in an index or a check constraint is written with the table's
-- name, which the new table does not have while they are made for it.
WITH this AS (
    SELECT c.*,
           pg_catalog.format('table %I.%I', n.nspname, c.relname) AS label,
           pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted_name,
           n.nspname
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = :'oid'::oid
),
own (classid, objid) AS (
    SELECT 'pg_catalog.pg_class'::regclass::oid, t.oid FROM this AS t
    UNION ALL
    SELECT 'pg_catalog.pg_class'::regclass, i.indexrelid FROM pg_catalog.pg_index AS i WHERE i.indrelid = :'oid'::oid
    UNION ALL
    SELECT 'pg_catalog.pg_trigger'::regclass, g.oid FROM pg_catalog.pg_trigger AS g WHERE g.tgrelid = :'oid'::oid
)
SELECT 'kind of relation' AS kind,
       CASE t.relkind WHEN 'p' THEN t.label || ' is partitioned' ELSE t.label || ' is not a plain table' END AS description
  FROM this AS t
 WHERE t.relkind <> 'r'
UNION ALL
SELECT 'temporary table', t.label || ' is temporary'
  FROM this AS t
 WHERE t.relpersistence = 't'
UNION ALL
SELECT CASE WHEN t.relispartition THEN 'partition' ELSE 'inheritance' END,
       pg_catalog.format(
           CASE WHEN t.relispartition THEN '%s is a partition of %s' ELSE '%s inherits from %s' END,
           t.label,
           h.inhparent::regclass
       )
  FROM this AS t
  JOIN pg_catalog.pg_inherits AS h ON h.inhrelid = t.oid
UNION ALL
SELECT 'typed table', pg_catalog.format('%s is of type %s', t.label, pg_catalog.format_type(t.reloftype, NULL))
  FROM this AS t
 WHERE t.reloftype <> 0
UNION ALL
SELECT 'extension',
       pg_catalog.format(
           CASE d.deptype WHEN 'e' THEN '%s belongs to extension %I' ELSE '%s depends on extension %I' END,
           pg_catalog.pg_describe_object(d.classid, d.objid, 0),
           e.extname
       )
  FROM own
  JOIN pg_catalog.pg_depend AS d ON d.classid = own.classid AND d.objid = own.objid AND d.deptype IN ('e', 'x')
  JOIN pg_catalog.pg_extension AS e ON d.refclassid = 'pg_catalog.pg_extension'::regclass AND e.oid = d.refobjid
UNION ALL
SELECT DISTINCT 'initial privileges', t.label || ' has initial privileges'
  FROM this AS t
  JOIN pg_catalog.pg_init_privs AS p ON p.classoid = 'pg_catalog.pg_class'::regclass AND p.objoid = t.oid
UNION ALL
SELECT 'subscription', pg_catalog.format('%s is subscribed to by subscription %I', t.label, s.subname)
  FROM this AS t
  JOIN pg_catalog.pg_subscription_rel AS r ON r.srrelid = t.oid
  JOIN pg_catalog.pg_subscription AS s ON s.oid = r.srsubid
UNION ALL
SELECT 'row type', pg_catalog.format('row type of %s has privileges or a comment of its own', t.label)
  FROM this AS t
  JOIN pg_catalog.pg_type AS y ON y.oid = t.reltype
 WHERE y.typacl IS NOT NULL
    OR pg_catalog.obj_description(y.oid, 'pg_type') IS NOT NULL
UNION ALL
SELECT 'whole-row reference',
       pg_catalog.format('constraint %I on %s refers to the whole row', k.conname, t.label)
  FROM this AS t
  JOIN pg_catalog.pg_constraint AS k ON k.conrelid = t.oid
 WHERE k.conbin::text ~ '\{VAR :varno 1 :varattno 0 '
UNION ALL
SELECT 'whole-row reference', pg_catalog.format('index %s refers to the whole row', i.indexrelid::regclass)
  FROM this AS t
  JOIN pg_catalog.pg_index AS i ON i.indrelid = t.oid
 WHERE pg_catalog.concat(i.indexprs::text, i.indpred::text) ~ '\{VAR :varno 1 :varattno 0 '
UNION ALL
SELECT 'ownership', pg_catalog.format('role %I does not own %s', CURRENT_USER, t.label)
  FROM this AS t
 WHERE NOT pg_catalog.pg_has_role(t.relowner, 'USAGE')
UNION ALL
SELECT 'privilege', pg_catalog.format('role %I may not create in schema %I', CURRENT_USER, t.nspname)
  FROM this AS t
 WHERE NOT pg_catalog.has_schema_privilege(t.relnamespace, 'CREATE')
UNION ALL
SELECT 'privilege',
       pg_catalog.format('role %I may not execute %s of trigger %I', CURRENT_USER, g.tgfoid::regprocedure, g.tgname)
  FROM this AS t
  JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = t.oid AND NOT g.tgisinternal
 WHERE NOT pg_catalog.has_function_privilege(g.tgfoid, 'EXECUTE')
UNION ALL
SELECT 'privilege',
       pg_catalog.format(
           'role %I may not refer to table %s of constraint %I', CURRENT_USER, k.confrelid::regclass, k.conname
       )
  FROM this AS t
  JOIN pg_catalog.pg_constraint AS k ON k.conrelid = t.oid AND k.contype = 'f' AND k.confrelid <> t.oid
 WHERE NOT pg_catalog.has_any_column_privilege(k.confrelid, 'REFERENCES')
UNION ALL
SELECT 'privilege', pg_catalog.format('role %I does not own publication %I', CURRENT_USER, p.pubname)
  FROM this AS t
  JOIN pg_catalog.pg_publication_rel AS r ON r.prrelid = t.oid
  JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
 WHERE NOT pg_catalog.pg_has_role(p.pubowner, 'USAGE')
UNION ALL
SELECT 'privilege',
       pg_catalog.format('role %I may not make statistics object %I.%I', CURRENT_USER, n.nspname, s.stxname)
  FROM this AS t
  JOIN pg_catalog.pg_statistic_ext AS s ON s.stxrelid = t.oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = s.stxnamespace
 WHERE NOT pg_catalog.has_schema_privilege(n.oid, 'CREATE')
    OR NOT pg_catalog.pg_has_role(s.stxowner, 'USAGE')
UNION ALL
SELECT 'trigger state', pg_catalog.format('foreign key %I on %s has its triggers disabled', k.conname, t.label)
  FROM this AS t
  JOIN pg_catalog.pg_constraint AS k ON k.conrelid = t.oid AND k.contype = 'f'
 WHERE EXISTS (SELECT FROM pg_catalog.pg_trigger AS g WHERE g.tgconstraint = k.oid AND g.tgenabled <> 'O')
UNION ALL
SELECT DISTINCT 'privilege',
       pg_catalog.format('role %I may not grant as role %I on %s', CURRENT_USER, g.rolname, t.label)
  FROM this AS t
 CROSS JOIN LATERAL (
           SELECT t.relacl AS acl
           UNION ALL
           SELECT a.attacl
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = t.oid
              AND NOT a.attisdropped
       ) AS lists
 CROSS JOIN LATERAL pg_catalog.aclexplode(lists.acl) AS e
  JOIN pg_catalog.pg_roles AS g ON g.oid = e.grantor
 WHERE e.grantor <> t.relowner
   AND NOT pg_catalog.pg_has_role(e.grantor, 'MEMBER')
 ORDER BY 1,
          2;
