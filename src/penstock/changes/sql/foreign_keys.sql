-- foreign_keys.sql: the foreign keys of a table, and those that refer to it
-- returns changes.tables.parts.ForeignKey; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f foreign_keys.sql
--
-- Needs penstock's own search_path, so that names are qualified. `definition` is the text for ADD CONSTRAINT.
-- `is_kept_whole` is true if the key refers to a partitioned table or is part of a key that does. If the key is
-- attached to a key of a partitioned table, `parent` is that key, and `parent_oid` is that table. `cast_owner` is the
-- role whose functions may run to compare the key's columns. Columns of later versions are read through JSON.
SELECT k.conname::text AS name,
       k.conrelid AS relation_oid,
       pg_catalog.format('%I.%I', rn.nspname, r.relname) AS relation,
       r.relkind::text AS relation_kind,
       k.confrelid AS references_oid,
       pg_catalog.format('%I.%I', fn.nspname, f.relname) AS "references",
       x.relname::text AS references_index,
       pg_catalog.pg_get_constraintdef(k.oid) AS definition,
       k.condeferrable AS is_deferrable,
       k.condeferred AS is_deferred,
       k.convalidated AS is_validated,
       COALESCE((pg_catalog.to_jsonb(k) ->> 'conenforced')::bool, true) AS is_enforced,
       pg_catalog.obj_description(k.oid, 'pg_constraint') AS comment,
       f.relkind = 'p' OR COALESCE(u.confrelid <> k.confrelid, false) AS is_kept_whole,
       u.conrelid AS parent_oid,
       u.conname::text AS parent,
       pg_catalog.pg_get_userbyid(r.relowner)::text AS owner,
       pg_catalog.pg_has_role(r.relowner, 'USAGE') AS is_owner,
       pg_catalog.has_table_privilege(f.oid, 'REFERENCES')
       OR NOT EXISTS (
              SELECT
                FROM pg_catalog.unnest(k.confkey) AS u (attnum)
               WHERE NOT pg_catalog.has_column_privilege(f.oid, u.attnum, 'REFERENCES')
          ) AS may_refer,
       EXISTS (
           SELECT
             FROM pg_catalog.pg_trigger AS g
            WHERE g.tgconstraint = k.oid
              AND g.tgenabled <> 'O'
       ) AS has_altered_triggers,
       -- The same query as in casts.sql
       (
           WITH RECURSIVE compared AS (
               SELECT a.atttypid AS oid
                 FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = k.conrelid
                  AND a.attnum = ANY (k.conkey)
                UNION
               SELECT t.typbasetype
                 FROM compared AS c
                 JOIN pg_catalog.pg_type AS t ON t.oid = c.oid
                WHERE t.typtype = 'd'
           )
           SELECT pg_catalog.min(o.rolname::text)
             FROM compared AS c
             JOIN pg_catalog.pg_cast AS s ON s.castsource = c.oid
             JOIN pg_catalog.pg_proc AS p ON p.oid = s.castfunc
             JOIN pg_catalog.pg_roles AS o ON o.oid = p.proowner
            WHERE s.castcontext = 'i'
              AND NOT o.rolsuper
       ) AS cast_owner,
       (
           SELECT COALESCE(
                      pg_catalog.jsonb_object_agg(
                          pg_catalog.format('%s.%I', a.attrelid, a.attname),
                          pg_catalog.format_type(a.atttypid, a.atttypmod)
                      ),
                      '{}'
                  )
             FROM pg_catalog.pg_attribute AS a
            WHERE (a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey))
               OR (a.attrelid = k.confrelid AND a.attnum = ANY (k.confkey))
       ) AS columns
  FROM pg_catalog.pg_constraint AS k
  JOIN pg_catalog.pg_class AS r ON r.oid = k.conrelid
  JOIN pg_catalog.pg_namespace AS rn ON rn.oid = r.relnamespace
  JOIN pg_catalog.pg_class AS f ON f.oid = k.confrelid
  JOIN pg_catalog.pg_namespace AS fn ON fn.oid = f.relnamespace
  LEFT JOIN pg_catalog.pg_class AS x ON x.oid = k.conindid
  LEFT JOIN pg_catalog.pg_constraint AS u ON u.oid = k.conparentid
 WHERE k.contype = 'f'
   AND (k.conrelid = :'oid'::oid OR k.confrelid = :'oid'::oid)
 ORDER BY k.conrelid <> :'oid'::oid,
          r.relname,
          k.conname;
