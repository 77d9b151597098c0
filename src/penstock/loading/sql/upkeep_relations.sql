-- upkeep_relations.sql: tables with their partitions, how much VACUUM would read, and whether this role may vacuum them
-- returns loading.values.plan.Relation; needs no privilege; PostgreSQL 14+
-- psql -v oids={1259} -f upkeep_relations.sql
--
-- The rights are those that vacuum_is_permitted_for_relation checks (src/backend/commands/vacuum.c): the owner, the
-- database's owner, and from PostgreSQL 17 a role with MAINTAIN. VACUUM skips other tables with only a warning.
WITH roots AS (
    SELECT r.oid
      FROM pg_catalog.unnest(:'oids'::oid[]) AS r (oid)
),
trees AS (
    SELECT r.oid AS root_oid,
           r.oid AS oid
      FROM roots AS r
    UNION
    SELECT r.oid,
           p.relid::oid
      FROM roots AS r
      CROSS JOIN LATERAL pg_catalog.pg_partition_tree(r.oid) AS p
)
SELECT t.root_oid,
       c.oid,
       n.nspname::text AS schema,
       c.relname::text AS name,
       c.relkind::text AS kind,
       COALESCE(
           CASE WHEN c.relkind = 'r' THEN pg_catalog.pg_relation_size(c.oid) END
           / pg_catalog.current_setting('block_size')::int8,
           0
       ) AS pages,
       GREATEST(c.relpages, 0) AS known_pages,
       COALESCE(
           pg_catalog.pg_stat_get_tuples_inserted(c.oid)
           + pg_catalog.pg_stat_get_tuples_updated(c.oid)
           + pg_catalog.pg_stat_get_tuples_deleted(c.oid),
           0
       ) AS written,
       COALESCE(
           pg_catalog.pg_stat_get_mod_since_analyze(c.oid) + pg_catalog.pg_stat_get_ins_since_vacuum(c.oid),
           0
       ) AS changes,
       pg_catalog.pg_has_role(c.relowner, 'USAGE')
       OR pg_catalog.pg_has_role(d.datdba, 'USAGE')
       OR CASE
              WHEN pg_catalog.current_setting('server_version_num')::int >= 170000
              THEN pg_catalog.has_table_privilege(c.oid, 'MAINTAIN')
              ELSE false
          END AS may_vacuum
  FROM trees AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()
 WHERE c.relkind IN ('r', 'p')
   AND c.relpersistence <> 't'
 ORDER BY t.root_oid,
          n.nspname,
          c.relname;
