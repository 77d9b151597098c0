-- table.sql: the relation with a name in a schema
-- returns core.catalogue.catalog.TableRow; needs no privilege; PostgreSQL 14+
-- psql -v schema=pg_catalog -v name=pg_class -f table.sql
--
-- tgtype & 1: a trigger is for each row; & 4: it fires on INSERT; & 66: BEFORE or INSTEAD OF (pg_trigger.h).
-- Temporary tables are not returned: they belong to one session, and a load has several.
WITH target AS (
    SELECT c.oid,
           n.oid AS schema_oid,
           n.nspname,
           c.relname,
           c.relkind,
           c.relpersistence,
           c.relhasindex,
           c.relnatts,
           c.relispartition,
           c.relowner
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.relname = :'name'::text
       AND c.relpersistence <> 't'
       AND n.nspname = :'schema'::text
),
tree AS (
    SELECT t.oid
      FROM target AS t
    UNION
    SELECT p.relid::oid
      FROM target AS t
      CROSS JOIN LATERAL pg_catalog.pg_partition_tree(t.oid) AS p
),
line AS (
    SELECT t.oid
      FROM target AS t
    UNION
    SELECT a.relid::oid
      FROM target AS t
      CROSS JOIN LATERAL pg_catalog.pg_partition_ancestors(t.oid) AS a
),
enabled AS (
    SELECT g.*
      FROM pg_catalog.pg_trigger AS g
      JOIN tree ON tree.oid = g.tgrelid
     WHERE (g.tgtype & 4) = 4
       AND g.tgenabled IN (
               'A',
               CASE pg_catalog.current_setting('session_replication_role')
                   WHEN 'replica' THEN 'R'::"char"
                   ELSE 'O'::"char"
               END
           )
),
fired AS (
    -- The enabled triggers without internal ones, such as those of foreign keys, and without the copies that the
    -- partitions have of the table's triggers. A copy that the table has of its parent's trigger counts. PostgreSQL 14
    -- marks copies as internal.
    SELECT g.*
      FROM enabled AS g
     WHERE (NOT g.tgisinternal OR (g.tgparentid <> 0 AND g.tgconstraint = 0))
       AND (g.tgparentid = 0 OR g.tgrelid IN (SELECT t.oid FROM target AS t))
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
           SELECT a.attname::text
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = t.oid
              AND a.attnum > 0
              AND NOT a.attisdropped
              AND NOT pg_catalog.has_column_privilege(t.oid, a.attnum, 'INSERT')
            ORDER BY a.attnum
       ) AS denied_columns,
       ARRAY(
           SELECT pg_catalog.format('%I ON %s', g.tgname, g.tgrelid::regclass)
             FROM enabled AS g
            WHERE (g.tgtype & 5) = 5
              AND (g.tgtype & 66) <> 0
            ORDER BY 1
       ) AS suppressing_triggers,
       ARRAY(
           SELECT pg_catalog.format('%I ON %s', g.tgname, g.tgrelid::regclass)
             FROM fired AS g
            WHERE (g.tgtype & 1) = 1
            ORDER BY 1
       ) AS row_triggers,
       ARRAY(
           SELECT pg_catalog.format('%I ON %s', g.tgname, g.tgrelid::regclass)
             FROM fired AS g
            WHERE (g.tgtype & 1) = 0
              AND g.tgrelid = t.oid
            ORDER BY 1
       ) AS statement_triggers,
       ARRAY(
           SELECT c.oid::regclass::text
             FROM pg_catalog.pg_class AS c
             JOIN tree ON tree.oid = c.oid
            WHERE c.relpersistence = 'u'
              AND c.oid <> t.oid
            ORDER BY 1
       ) AS unlogged_partitions,
       -- All publications of tables of this database, if none of them publishes the table's new rows. Since PostgreSQL
       -- 19, a publication can publish only sequences, and a publication of all tables can exclude tables with their
       -- partitions.
       ARRAY(
           SELECT p.pubname::text
             FROM pg_catalog.pg_publication AS p
            WHERE (p.puballtables OR pg_catalog.to_jsonb(p) ->> 'puballsequences' IS DISTINCT FROM 'true')
              AND NOT EXISTS (
                      SELECT
                        FROM pg_catalog.pg_publication AS q
                       WHERE q.pubinsert
                         AND CASE
                                 WHEN q.puballtables
                                 THEN NOT EXISTS (
                                          SELECT
                                            FROM pg_catalog.pg_publication_rel AS x
                                           WHERE x.prpubid = q.oid
                                             AND x.prrelid IN (SELECT line.oid FROM line)
                                             AND pg_catalog.to_jsonb(x) ->> 'prexcept' = 'true'
                                      )
                                 ELSE EXISTS (
                                          SELECT
                                            FROM pg_catalog.pg_get_publication_tables(q.pubname::text) AS published
                                           WHERE published.relid IN (SELECT tree.oid FROM tree)
                                              OR published.relid IN (SELECT line.oid FROM line)
                                      )
                             END
                  )
            ORDER BY 1
       ) AS unpublished,
       pg_catalog.pg_has_role(t.relowner, 'USAGE')
       OR (SELECT pg_catalog.pg_has_role(d.datdba, 'USAGE')
             FROM pg_catalog.pg_database AS d
            WHERE d.datname = pg_catalog.current_database())
       OR CASE
              WHEN pg_catalog.current_setting('server_version_num')::int >= 170000
              THEN pg_catalog.has_table_privilege(t.oid, 'MAINTAIN')
              ELSE false
          END AS may_vacuum,
       pg_catalog.pg_has_role(t.relowner, 'USAGE') AS is_owner,
       t.relhasindex
       OR EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN tree ON tree.oid = c.oid WHERE c.relhasindex) AS has_indexes,
       t.relnatts::int4 AS attributes,
       t.relispartition AS is_partition
  FROM target AS t;
