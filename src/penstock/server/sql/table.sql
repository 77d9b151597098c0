-- table.sql: the relation of a name as this session would find it; an empty schema means by search_path
-- returns catalog.TableRow; needs no privilege; PostgreSQL 14+
-- psql -v schema=pg_catalog -v name=pg_class -f table.sql
--
-- A trigger with tgtype & 5 is for each row and fires on INSERT; & 66 makes it BEFORE or INSTEAD OF (pg_trigger.h).
-- Temporary tables belong to one session, and a load has several: they are not found.
WITH target AS (
    SELECT c.oid,
           n.oid AS schema_oid,
           n.nspname,
           c.relname,
           c.relkind,
           c.relpersistence,
           c.relhasindex
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.relname = :'name'::text
       AND c.relpersistence <> 't'
       AND CASE
               WHEN :'schema'::text = '' THEN pg_catalog.pg_table_is_visible(c.oid)
               ELSE n.nspname = :'schema'::text
           END
),
tree AS (
    SELECT t.oid
      FROM target AS t
    UNION
    SELECT p.relid::oid
      FROM target AS t
      CROSS JOIN LATERAL pg_catalog.pg_partition_tree(t.oid) AS p
)
SELECT t.oid,
       t.nspname::text AS schema,
       t.relname::text AS name,
       t.relkind::text AS kind,
       t.relpersistence = 'u' AS is_unlogged,
       pg_catalog.row_security_active(t.oid) AS row_security_applies,
       pg_catalog.has_schema_privilege(t.schema_oid, 'USAGE')
       AND pg_catalog.has_any_column_privilege(t.oid, 'INSERT') AS can_insert,
       ARRAY(
           SELECT pg_catalog.format('%I ON %s', g.tgname, g.tgrelid::regclass)
             FROM pg_catalog.pg_trigger AS g
             JOIN tree ON tree.oid = g.tgrelid
            WHERE (g.tgtype & 5) = 5
              AND (g.tgtype & 66) <> 0
              AND g.tgenabled IN (
                      'A',
                      CASE pg_catalog.current_setting('session_replication_role')
                          WHEN 'replica' THEN 'R'::"char"
                          ELSE 'O'::"char"
                      END
                  )
            ORDER BY 1
       ) AS suppressing_triggers,
       t.relhasindex AS has_indexes
  FROM target AS t;
