-- ddl_parts.sql: the parts of a table, except its indexes and constraints, as the statements that would create them
-- returns changes.tables.definition.PartRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_parts.sql
--
-- Needs penstock's own search_path, so that names are qualified. The step says how a part is created. `like`: elsewhere
-- (by LIKE or ddl_handover.sql), so the part is only compared. `create`: by an action of ALTER TABLE. `revoke` and
-- `swap`: by a statement; the statements of `swap` use the final names of all parts. Minor versions of November 2026
-- (15.20) keep a mark of their own, pg_attver, among the options; pg_dump does not show it.
WITH this AS (
    SELECT c.*,
           pg_catalog.format('%I.%I', n.nspname, c.relname) AS label
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = :'oid'::oid
),
columns AS (
    SELECT a.*,
           pg_catalog.row_number() OVER (ORDER BY a.attnum) AS position
      FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid = :'oid'::oid
       AND a.attnum > 0
       AND NOT a.attisdropped
),
sequences AS (
    SELECT s.oid,
           pg_catalog.format('%I.%I', n.nspname, s.relname) AS label,
           s.relowner,
           s.relacl,
           d.deptype,
           d.refobjsubid
      FROM pg_catalog.pg_depend AS d
      JOIN pg_catalog.pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
      JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
     WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjid = :'oid'::oid
       AND d.classid = 'pg_catalog.pg_class'::regclass
       AND d.deptype IN ('a', 'i')
),
options AS (
    SELECT o.attname,
           pg_catalog.string_agg(
               pg_catalog.format(
                   '%s%I = %L',
                   o.prefix,
                   pg_catalog.split_part(u.option, '=', 1),
                   pg_catalog.substr(u.option, pg_catalog.strpos(u.option, '=') + 1)
               ),
               ', ' ORDER BY o.prefix, u.position
           ) AS list
      FROM (
               SELECT NULL::name AS attname, '' AS prefix, t.reloptions FROM this AS t
               UNION ALL
               SELECT NULL, 'toast.', c.reloptions
                 FROM this AS t
                 JOIN pg_catalog.pg_class AS c ON c.oid = t.reltoastrelid
               UNION ALL
               SELECT a.attname, '', a.attoptions FROM columns AS a
           ) AS o
     CROSS JOIN LATERAL pg_catalog.unnest(o.reloptions) WITH ORDINALITY AS u (option, position)
     WHERE NOT pg_catalog.starts_with(u.option, 'pg_attver=')
     GROUP BY o.attname
),
acls AS (
    SELECT 'TABLE ' || t.label AS target,
           NULL::name AS attname,
           t.relowner,
           COALESCE(t.relacl, pg_catalog.acldefault('r', t.relowner)) AS acl
      FROM this AS t
    UNION ALL
    SELECT 'TABLE ' || t.label, a.attname, t.relowner, a.attacl FROM this AS t CROSS JOIN columns AS a
    UNION ALL
    SELECT 'SEQUENCE ' || s.label, NULL, s.relowner, COALESCE(s.relacl, pg_catalog.acldefault('s', s.relowner))
      FROM sequences AS s
     WHERE s.deptype = 'i'
),
grants AS (
    SELECT l.target,
           l.attname,
           l.relowner,
           e.*,
           CASE WHEN e.grantee = 0 THEN 'PUBLIC' ELSE e.grantee::regrole::text END AS role
      FROM acls AS l
     CROSS JOIN LATERAL pg_catalog.aclexplode(l.acl) AS e
),
commented (classid, objid) AS (
    SELECT 'pg_catalog.pg_class'::regclass::oid, :'oid'::oid
    UNION
    SELECT d.classid,
           d.objid
      FROM pg_catalog.pg_depend AS d
     WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjid = :'oid'::oid
       AND (d.deptype = 'i' OR (d.deptype = 'a' AND d.classid <> 'pg_catalog.pg_class'::regclass))
       -- The comments of keys are compared and created with their indexes.
       AND (d.classid, d.objid) NOT IN (
               SELECT k.tableoid, k.oid FROM pg_catalog.pg_constraint AS k WHERE k.contype IN ('p', 'u', 'x')
           )
),
parts (place, part, step, statement) AS (
    SELECT 1,
           'columns',
           'like',
           ROW(
               a.position, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation,
               a.attnotnull, a.attgenerated, a.attidentity, a.attstorage, a.attcompression,
               pg_catalog.pg_get_expr(d.adbin, d.adrelid)
           )::text
      FROM columns AS a
      LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    UNION ALL
    SELECT 2,
           'columns',
           'create',
           pg_catalog.format('ALTER COLUMN %I SET STATISTICS %s', a.attname, a.attstattarget)
      FROM columns AS a
     WHERE a.attstattarget >= 0
    UNION ALL
    SELECT 3,
           CASE WHEN o.attname IS NULL THEN 'table' ELSE 'columns' END,
           'create',
           COALESCE('ALTER COLUMN ' || pg_catalog.quote_ident(o.attname) || ' ', '') || 'SET (' || o.list || ')'
      FROM options AS o
    UNION ALL
    SELECT 4,
           'sequences',
           'like',
           ROW(s.label, a.attname, s.deptype, pg_catalog.to_jsonb(q) - 'seqrelid')::text
      FROM sequences AS s
      JOIN columns AS a ON a.attnum = s.refobjsubid
      JOIN pg_catalog.pg_sequence AS q ON q.seqrelid = s.oid
    UNION ALL
    SELECT 5,
           'statistics',
           'like',
           ROW(pg_catalog.pg_get_statisticsobjdef(s.oid), s.stxowner::regrole, s.stxstattarget)::text
      FROM pg_catalog.pg_statistic_ext AS s
     WHERE s.stxrelid = :'oid'::oid
    UNION ALL
    SELECT 6, 'table', 'swap', pg_catalog.format('ALTER TABLE %s %s', t.label, a.action)
      FROM this AS t
     CROSS JOIN LATERAL (
               SELECT CASE t.relreplident WHEN 'n' THEN 'REPLICA IDENTITY NOTHING' ELSE 'REPLICA IDENTITY FULL' END
                WHERE t.relreplident IN ('n', 'f')
               UNION ALL
               SELECT 'ENABLE ROW LEVEL SECURITY' WHERE t.relrowsecurity
               UNION ALL
               SELECT 'FORCE ROW LEVEL SECURITY' WHERE t.relforcerowsecurity
           ) AS a (action)
    UNION ALL
    SELECT 7, 'triggers', 'swap', pg_catalog.pg_get_triggerdef(g.oid)
      FROM pg_catalog.pg_trigger AS g
     WHERE g.tgrelid = :'oid'::oid
       AND NOT g.tgisinternal
    UNION ALL
    SELECT 8, 'rules', 'swap', pg_catalog.pg_get_ruledef(r.oid)
      FROM pg_catalog.pg_rewrite AS r
     WHERE r.ev_class = :'oid'::oid
    UNION ALL
    SELECT 9,
           pg_catalog.lower(e.word) || 's',
           'swap',
           pg_catalog.format(
               'ALTER TABLE %s %s %s %I',
               t.label,
               CASE e.enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END,
               e.word,
               e.name
           )
      FROM this AS t
     CROSS JOIN LATERAL (
               SELECT 'TRIGGER', g.tgname, g.tgenabled
                 FROM pg_catalog.pg_trigger AS g
                WHERE g.tgrelid = t.oid
                  AND NOT g.tgisinternal
               UNION ALL
               SELECT 'RULE', r.rulename, r.ev_enabled FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = t.oid
           ) AS e (word, name, enabled)
     WHERE e.enabled <> 'O'
    UNION ALL
    SELECT 10,
           'policies',
           'swap',
           pg_catalog.format(
               'CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s',
               p.polname,
               t.label,
               CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
               CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
                   ELSE 'ALL' END,
               (
                   SELECT pg_catalog.string_agg(
                              CASE WHEN r.oid = 0 THEN 'PUBLIC' ELSE r.oid::regrole::text END, ', ' ORDER BY r.oid
                          )
                     FROM pg_catalog.unnest(p.polroles) AS r (oid)
               ),
               ' USING (' || pg_catalog.pg_get_expr(p.polqual, p.polrelid) || ')',
               ' WITH CHECK (' || pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid) || ')'
           )
      FROM this AS t
      JOIN pg_catalog.pg_policy AS p ON p.polrelid = t.oid
    UNION ALL
    SELECT DISTINCT 11,
           'grants',
           'swap',
           pg_catalog.format('REVOKE ALL ON %s FROM %I', l.target, pg_catalog.pg_get_userbyid(l.relowner))
      FROM acls AS l
    UNION ALL
    SELECT DISTINCT 11, 'grants', 'revoke', pg_catalog.format('REVOKE ALL ON %s FROM %s CASCADE', g.target, g.role)
      FROM grants AS g
     WHERE g.grantee <> g.relowner
    UNION ALL
    SELECT 12,
           'grants',
           'swap',
           pg_catalog.format(
               'GRANT %s%s ON %s TO %s%s',
               g.privilege_type,
               ' (' || pg_catalog.quote_ident(g.attname) || ')',
               g.target,
               g.role,
               CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' END
           )
      FROM grants AS g
    UNION ALL
    SELECT 13,
           'comments',
           'swap',
           pg_catalog.format(
               'COMMENT ON %s %s IS %L',
               CASE i.type
                   WHEN 'table column' THEN 'COLUMN'
                   WHEN 'table constraint' THEN 'CONSTRAINT'
                   WHEN 'statistics object' THEN 'STATISTICS'
                   ELSE pg_catalog.upper(i.type)
               END,
               i.identity,
               d.description
           )
      FROM commented AS o
      JOIN pg_catalog.pg_description AS d ON d.classoid = o.classid AND d.objoid = o.objid
     CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classoid, d.objoid, d.objsubid) AS i
)
SELECT p.part,
       p.step,
       p.statement
  FROM parts AS p
 ORDER BY p.place,
          p.statement;
