-- ddl_obstacles.sql: objects that depend on a table, and properties of it that a new table in its place could not have
-- returns changes.tables.definition.DdlObstacle; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_obstacles.sql
--
-- Needs penstock's own search_path, so that names are qualified. `own` are all objects that are dropped with the table
-- and created again for its replacement. They do not include triggers of other tables, or sequences of serial columns,
-- which stay and may be used by other tables. If the rule of a view depends on the table, the view is named, not the
-- rule. In PostgreSQL 14, rows of deptype p only mark system objects. LIKE cannot copy an expression on the whole row,
-- and the definition of an index with such an expression names the table. A publication FOR ALL TABLES that excludes
-- the table would publish the new one, from its first row on, to subscribers that lack it. `prexcept` exists since
-- PostgreSQL 19 and is read through JSON.
WITH RECURSIVE this AS (
    SELECT c.*,
           n.nspname,
           pg_catalog.format('table %I.%I', n.nspname, c.relname) AS label
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = :'oid'::oid
),
own (classid, objid) AS (
    SELECT 'pg_catalog.pg_class'::regclass::oid, :'oid'::oid
    UNION
    SELECT d.classid,
           d.objid
      FROM own AS o
      JOIN pg_catalog.pg_depend AS d ON d.refclassid = o.classid AND d.refobjid = o.objid AND d.deptype IN ('a', 'i')
      LEFT JOIN pg_catalog.pg_trigger AS g ON d.classid = 'pg_catalog.pg_trigger'::regclass AND g.oid = d.objid
      LEFT JOIN pg_catalog.pg_class AS c ON d.classid = 'pg_catalog.pg_class'::regclass AND c.oid = d.objid
     WHERE d.classid::regclass = ANY (
               '{pg_catalog.pg_class,pg_catalog.pg_type,pg_catalog.pg_constraint,pg_catalog.pg_trigger,
                 pg_catalog.pg_policy,pg_catalog.pg_rewrite,pg_catalog.pg_attrdef,pg_catalog.pg_statistic_ext,
                 pg_catalog.pg_publication_rel}'::regclass[]
           )
       AND (g.oid IS NULL OR g.tgisinternal OR g.tgrelid = :'oid'::oid)
       AND (c.oid IS NULL OR c.relkind <> 'S' OR d.deptype = 'i')
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
               d.deptype = 'a'
               AND (d.classid, d.objid) IN (
                       SELECT c.tableoid, c.oid FROM pg_catalog.pg_class AS c WHERE c.relkind = 'S'
                   )
           )
)
SELECT i.type AS kind,
       pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) AS description
  FROM dependents AS d
 CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, d.objsubid) AS i
UNION ALL
SELECT h.kind,
       h.description
  FROM this AS t
 CROSS JOIN LATERAL (
           SELECT 'kind of relation',
                  t.label || CASE t.relkind WHEN 'p' THEN ' is partitioned' ELSE ' is not a plain table' END
            WHERE t.relkind <> 'r'
           UNION ALL
           SELECT 'temporary table', t.label || ' is temporary' WHERE t.relpersistence = 't'
           UNION ALL
           SELECT 'inheritance', pg_catalog.format('%s inherits from %s', t.label, h.inhparent::regclass)
             FROM pg_catalog.pg_inherits AS h
            WHERE h.inhrelid = t.oid
              AND NOT t.relispartition
           UNION ALL
           SELECT 'typed table', t.label || ' is of type ' || pg_catalog.format_type(t.reloftype, NULL)
            WHERE t.reloftype <> 0
           UNION ALL
           SELECT 'extension',
                  pg_catalog.format(
                      CASE d.deptype WHEN 'e' THEN '%s belongs to extension %I' ELSE '%s depends on extension %I' END,
                      pg_catalog.pg_describe_object(d.classid, d.objid, 0),
                      e.extname
                  )
             FROM own AS o
             JOIN pg_catalog.pg_depend AS d ON d.classid = o.classid AND d.objid = o.objid AND d.deptype IN ('e', 'x')
             JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid
           UNION ALL
           SELECT 'subscription', pg_catalog.format('%s is subscribed to by subscription %I', t.label, s.subname)
             FROM pg_catalog.pg_subscription_rel AS r
             JOIN pg_catalog.pg_subscription AS s ON s.oid = r.srsubid
            WHERE r.srrelid = t.oid
           UNION ALL
           SELECT DISTINCT 'security label', t.label || ' has security labels'
             FROM pg_catalog.pg_seclabel AS l
            WHERE l.objoid = t.oid
              AND l.classoid = 'pg_catalog.pg_class'::regclass
           UNION ALL
           SELECT 'row type', pg_catalog.format('row type of %s has privileges or a comment of its own', t.label)
             FROM pg_catalog.pg_type AS y
            WHERE y.oid = t.reltype
              AND (y.typacl IS NOT NULL OR pg_catalog.obj_description(y.oid, 'pg_type') IS NOT NULL)
           UNION ALL
           SELECT 'whole-row reference', pg_catalog.format('%s refers to the whole row', e.name)
             FROM (
                      SELECT pg_catalog.format('constraint %I on %s', k.conname, t.label), k.conbin::text
                        FROM pg_catalog.pg_constraint AS k
                       WHERE k.conrelid = t.oid
                      UNION ALL
                      SELECT 'index ' || i.indexrelid::regclass, pg_catalog.concat(i.indexprs::text, i.indpred::text)
                        FROM pg_catalog.pg_index AS i
                       WHERE i.indrelid = t.oid
                  ) AS e (name, tree)
            WHERE e.tree ~ '\{VAR :varno 1 :varattno 0 '
           UNION ALL
           SELECT 'ownership', pg_catalog.format('role %I does not own %s', CURRENT_USER, t.label)
            WHERE NOT pg_catalog.pg_has_role(t.relowner, 'USAGE')
           UNION ALL
           SELECT 'privilege', pg_catalog.format('role %I may not create in schema %I', CURRENT_USER, t.nspname)
            WHERE NOT pg_catalog.has_schema_privilege(t.relnamespace, 'CREATE')
           UNION ALL
           -- The new table gets its owner by ALTER TABLE, for which the owner needs the right too, unless a superuser
           -- runs it.
           SELECT 'privilege',
                  pg_catalog.format('owner %s of %s may not create in schema %I', t.relowner::regrole, t.label, t.nspname)
            WHERE NOT pg_catalog.has_schema_privilege(t.relowner, t.relnamespace, 'CREATE')
              AND EXISTS (
                      SELECT
                        FROM pg_catalog.pg_roles AS r
                       WHERE r.rolname = CURRENT_USER
                         AND NOT r.rolsuper
                         AND r.oid <> t.relowner
                  )
           UNION ALL
           SELECT 'privilege', pg_catalog.format('role %I may not read %s', CURRENT_USER, t.label)
            WHERE NOT pg_catalog.has_table_privilege(t.oid, 'SELECT')
              AND pg_catalog.pg_has_role(t.relowner, 'USAGE')
           UNION ALL
           SELECT 'privilege',
                  pg_catalog.format(
                      'role %I may not execute %s of trigger %I', CURRENT_USER, g.tgfoid::regprocedure, g.tgname
                  )
             FROM pg_catalog.pg_trigger AS g
            WHERE g.tgrelid = t.oid
              AND NOT g.tgisinternal
              AND NOT pg_catalog.has_function_privilege(g.tgfoid, 'EXECUTE')
           UNION ALL
           SELECT 'privilege',
                  pg_catalog.format(
                      'role %I may not refer to table %s of constraint %I',
                      CURRENT_USER, k.confrelid::regclass, k.conname
                  )
             FROM pg_catalog.pg_constraint AS k
            WHERE k.conrelid = t.oid
              AND k.contype = 'f'
              AND k.confrelid <> t.oid
              -- Without the rows for the partitions of a partitioned table that it refers to.
              AND NOT EXISTS (
                      SELECT FROM pg_catalog.pg_constraint AS p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid
                  )
              AND NOT pg_catalog.has_any_column_privilege(k.confrelid, 'REFERENCES')
           UNION ALL
           SELECT 'privilege', pg_catalog.format('role %I does not own publication %I', CURRENT_USER, p.pubname)
             FROM pg_catalog.pg_publication_rel AS r
             JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
            WHERE r.prrelid = t.oid
              AND NOT pg_catalog.pg_has_role(p.pubowner, 'USAGE')
              AND pg_catalog.to_jsonb(r) ->> 'prexcept' IS DISTINCT FROM 'true'
           UNION ALL
           SELECT 'publication', pg_catalog.format('%s is excluded from publication %I', t.label, p.pubname)
             FROM pg_catalog.pg_publication_rel AS r
             JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
            WHERE r.prrelid = t.oid
              AND pg_catalog.to_jsonb(r) ->> 'prexcept' = 'true'
           UNION ALL
           SELECT 'trigger state',
                  pg_catalog.format('foreign key %I on %s has its triggers disabled', k.conname, t.label)
             FROM pg_catalog.pg_constraint AS k
            WHERE k.conrelid = t.oid
              AND k.contype = 'f'
              AND EXISTS (SELECT FROM pg_catalog.pg_trigger AS g WHERE g.tgconstraint = k.oid AND g.tgenabled <> 'O')
           UNION ALL
           SELECT DISTINCT 'grant',
                  pg_catalog.format('%s has grants by role %s, who is not its owner', t.label, e.grantor::regrole)
             FROM (
                      SELECT t.relacl
                      UNION ALL
                      SELECT a.attacl FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = t.oid AND NOT a.attisdropped
                      UNION ALL
                      SELECT c.relacl FROM own AS o JOIN pg_catalog.pg_class AS c ON c.oid = o.objid AND c.relkind = 'S'
                  ) AS l (acl)
            CROSS JOIN LATERAL pg_catalog.aclexplode(l.acl) AS e
            WHERE e.grantor <> t.relowner
       ) AS h (kind, description)
 ORDER BY 1,
          2;
