-- partition_obstacles.sql: what keeps a partition from being built aside and attached to a partitioned table
-- returns changes.tables.definition.DdlObstacle; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v skips_triggers=false -v is_new=true -v most_bytes=67108864 -f partition_obstacles.sql
--
-- Needs penstock's own search_path, so that names are qualified. Publications are found by ddl_publications.sql.
-- A row trigger of an ancestor is one of the parent, too. A foreign key to a partitioned table has a row for each of its
-- partitions, too. A publication FOR ALL TABLES that excludes the parent, or an ancestor, would publish the new table.
WITH this AS (
    SELECT c.*,
           n.nspname,
           c.oid::regclass::text AS label
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = :'oid'::oid
)
SELECT h.kind,
       h.description
  FROM this AS t
 CROSS JOIN LATERAL (
           SELECT 'temporary table' AS kind, pg_catalog.format('table %s is temporary', t.label) AS description
            WHERE t.relpersistence = 't'
           UNION ALL
           SELECT 'ownership', pg_catalog.format('role %I does not own table %s', CURRENT_USER, t.label)
            WHERE NOT pg_catalog.pg_has_role(t.relowner, 'USAGE')
           UNION ALL
           SELECT 'privilege', pg_catalog.format('role %I may not create in schema %I', CURRENT_USER, t.nspname)
            WHERE NOT pg_catalog.has_schema_privilege(t.relnamespace, 'CREATE')
           UNION ALL
           SELECT 'privilege',
                  pg_catalog.format(
                      'role %I may not create temporary tables in database %I',
                      CURRENT_USER,
                      pg_catalog.current_database()
                  )
            WHERE :'is_new'::bool
              AND NOT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
           UNION ALL
           SELECT 'trigger',
                  pg_catalog.format(
                      'trigger %I on table %s would not fire for the rows; to skip it, use --triggers disable',
                      g.tgname,
                      t.label
                  )
             FROM pg_catalog.pg_trigger AS g
            WHERE g.tgrelid = t.oid
              AND g.tgtype & 4 <> 0
              AND g.tgenabled <> 'D'
              AND (NOT g.tgisinternal OR g.tgparentid <> 0)
              AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS k WHERE k.oid = g.tgconstraint AND k.contype = 'f')
              AND NOT :'skips_triggers'::bool
           UNION ALL
           SELECT 'default partition',
                  pg_catalog.format(
                      'default partition %s has %s, and ATTACH reads it under a lock that readers wait for; move its'
                      || ' rows to partitions, or detach it first: ALTER TABLE %s DETACH PARTITION %1$s;',
                      k.partdefid::regclass,
                      pg_catalog.pg_size_pretty(b.bytes),
                      t.label
                  )
             FROM pg_catalog.pg_partitioned_table AS k
            CROSS JOIN LATERAL (
                      SELECT pg_catalog.sum(pg_catalog.pg_relation_size(p.relid)) AS bytes
                        FROM pg_catalog.pg_partition_tree(k.partdefid) AS p
                       WHERE k.partdefid <> 0
                  ) AS b
            WHERE k.partrelid = t.oid
              AND b.bytes > :'most_bytes'::int8
           UNION ALL
           SELECT 'index',
                  pg_catalog.format(
                      'index %s is not valid, since not all partitions have it; give it to them, or DROP INDEX %1$s;',
                      i.indexrelid::regclass
                  )
             FROM pg_catalog.pg_index AS i
            WHERE i.indrelid = t.oid
              AND NOT i.indisvalid
           UNION ALL
           SELECT 'constraint',
                  pg_catalog.format(
                      'the index of constraint %I cannot be attached, so that ATTACH would build it under its locks',
                      k.conname
                  )
             FROM pg_catalog.pg_constraint AS k
            WHERE k.conrelid = t.oid
              AND k.conexclop IS NOT NULL
           UNION ALL
           SELECT 'foreign key',
                  pg_catalog.format('foreign key %I of table %s is not enforced, or not valid', k.conname, t.label)
             FROM pg_catalog.pg_constraint AS k
            WHERE k.conrelid = t.oid
              AND k.contype = 'f'
              AND NOT (k.convalidated AND COALESCE((pg_catalog.to_jsonb(k) ->> 'conenforced')::bool, true))
              AND NOT EXISTS (
                      SELECT FROM pg_catalog.pg_constraint AS p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid
                  )
           UNION ALL
           SELECT 'foreign key',
                  pg_catalog.format('foreign key %I of table %s refers to it', k.conname, k.conrelid::regclass)
             FROM pg_catalog.pg_constraint AS k
            WHERE k.contype = 'f'
              AND k.conparentid = 0
              AND k.confrelid IN (
                      SELECT t.oid UNION SELECT a.relid FROM pg_catalog.pg_partition_ancestors(t.oid) AS a
                  )
           UNION ALL
           SELECT 'privilege',
                  pg_catalog.format(
                      'role %I may not refer to table %s of constraint %I',
                      CURRENT_USER,
                      k.confrelid::regclass,
                      k.conname
                  )
             FROM pg_catalog.pg_constraint AS k
            WHERE k.conrelid = t.oid
              AND k.contype = 'f'
              AND NOT EXISTS (
                      SELECT FROM pg_catalog.pg_constraint AS p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid
                  )
              AND NOT pg_catalog.has_any_column_privilege(k.confrelid, 'REFERENCES')
           UNION ALL
           SELECT 'publication',
                  pg_catalog.format(
                      'table %s is excluded from publication %I, which would publish the new one',
                      r.prrelid::regclass,
                      p.pubname
                  )
             FROM pg_catalog.pg_publication_rel AS r
             JOIN pg_catalog.pg_publication AS p ON p.oid = r.prpubid
            WHERE r.prrelid IN (SELECT t.oid UNION SELECT a.relid FROM pg_catalog.pg_partition_ancestors(t.oid) AS a)
              AND pg_catalog.to_jsonb(r) ->> 'prexcept' = 'true'
       ) AS h
 ORDER BY 1,
          2;
