-- indexes.sql: whether each index of a table can be dropped, and what must still exist to rebuild it
-- returns changes.tables.parts.IndexFacts; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f indexes.sql
--
-- `dependents` are objects that would be dropped with the index, except foreign keys. A key column that is an
-- expression has no name. If the index is attached to an index of a partitioned table, `parent` is that index, and
-- `parent_oid` is that table. Functions and operators of an expression, a condition or an exclusion constraint are
-- dependencies, unless they came with the server.
SELECT i.indrelid AS relation_oid,
       i.indexrelid AS oid,
       c.relname::text AS name,
       m.amname::text AS method,
       i.indisvalid AND i.indisready AND i.indislive AS is_valid,
       i.indisprimary AS is_primary,
       u.indrelid AS parent_oid,
       uc.relname::text AS parent,
       i.indpred IS NOT NULL AS is_partial,
       c.reltablespace = 0 OR pg_catalog.has_tablespace_privilege(c.reltablespace, 'CREATE') AS may_use_tablespace,
       EXISTS (
               SELECT
                 FROM pg_catalog.pg_depend AS d
                 LEFT JOIN pg_catalog.pg_operator AS o
                   ON o.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_operator'::regclass
                 JOIN pg_catalog.pg_proc AS p
                   ON p.oid = COALESCE(o.oprcode::oid, d.refobjid)
                WHERE d.refclassid IN ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass)
                  AND (
                          (d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = i.indexrelid)
                          OR (d.classid = 'pg_catalog.pg_constraint'::regclass AND d.objid = k.oid)
                      )
                  AND p.pronamespace <> 'pg_catalog'::regnamespace
                  AND NOT EXISTS (
                          SELECT
                            FROM pg_catalog.unnest(p.proconfig) AS s (setting)
                           WHERE pg_catalog.starts_with(s.setting, 'search_path=')
                      )
           ) AS runs_functions,
       ARRAY(
           SELECT COALESCE(a.attname::text, '')
             FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS u (attnum, position)
             LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = u.attnum AND u.attnum > 0
            WHERE u.position <= i.indnkeyatts
            ORDER BY u.position
       ) AS key_columns,
       (
           SELECT COALESCE(
                      pg_catalog.jsonb_object_agg(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)), '{}'
                  )
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = i.indrelid
              AND a.attnum > 0
              AND (
                      a.attnum = ANY (i.indkey::int2[])
                      OR EXISTS (
                          SELECT
                            FROM pg_catalog.pg_depend AS d
                           WHERE d.classid = 'pg_catalog.pg_class'::regclass
                             AND d.objid = i.indexrelid
                             AND d.refclassid = 'pg_catalog.pg_class'::regclass
                             AND d.refobjid = i.indrelid
                             AND d.refobjsubid = a.attnum
                      )
                  )
       ) AS columns,
       -- The approximate width of the index's entries: types without a fixed width count 24 bytes.
       (
           SELECT COALESCE(pg_catalog.sum(CASE WHEN a.attlen > 0 THEN a.attlen ELSE 24 END), 0)::int
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = i.indexrelid
       ) AS width_bytes,
       ARRAY(
           SELECT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
             FROM pg_catalog.pg_depend AS d
            WHERE (
                      (d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = i.indexrelid)
                      OR (d.refclassid = 'pg_catalog.pg_constraint'::regclass AND d.refobjid = k.oid)
                  )
              AND d.deptype NOT IN ('i', 'P', 'S')
              AND NOT (d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = i.indexrelid)
              AND NOT (
                      d.classid = 'pg_catalog.pg_constraint'::regclass
                      AND EXISTS (SELECT FROM pg_catalog.pg_constraint AS f WHERE f.oid = d.objid AND f.contype = 'f')
                  )
           UNION
           SELECT pg_catalog.pg_describe_object(d.refclassid, d.refobjid, 0)
             FROM pg_catalog.pg_depend AS d
            WHERE d.classid = 'pg_catalog.pg_class'::regclass
              AND d.objid = i.indexrelid
              AND d.deptype IN ('e', 'x')
            ORDER BY 1
       ) AS dependents
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
  LEFT JOIN pg_catalog.pg_constraint AS k
    ON k.conindid = i.indexrelid
   AND k.conrelid = i.indrelid
   AND k.contype IN ('p', 'u', 'x')
  LEFT JOIN pg_catalog.pg_inherits AS h ON h.inhrelid = i.indexrelid
  LEFT JOIN pg_catalog.pg_index AS u ON u.indexrelid = h.inhparent
  LEFT JOIN pg_catalog.pg_class AS uc ON uc.oid = h.inhparent
 WHERE i.indrelid = :'oid'::oid
 ORDER BY c.relname;
