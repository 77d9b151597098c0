-- write_costs.sql: what each row that is inserted pays for: foreign keys, row triggers and indexes of filled tables
-- returns (counters); needs no privilege; PostgreSQL 14+
-- psql -f write_costs.sql
--
-- `scans` are those of the referenced table's index. `cost` is the largest procost of functions that are not built in,
-- of the trigger or of the expressions. Keys of texts and the like take longer to compare. The fifty tables with the most inserted rows are read.
WITH filled AS (
    SELECT t.relid,
           t.schemaname,
           t.relname,
           t.n_tup_ins
      FROM pg_catalog.pg_stat_user_tables AS t
     WHERE t.n_tup_ins >= 1000
     ORDER BY t.n_tup_ins DESC
     LIMIT 50
),
costs AS (
    SELECT k.conrelid AS relid,
           'foreign key' AS kind,
           k.conname AS name,
           k.confrelid::regclass::text AS of,
           pg_catalog.pg_stat_get_numscans(k.conindid) AS scans,
           NULL::float8 AS cost,
           false AS is_text,
           false AS is_unique
      FROM pg_catalog.pg_constraint AS k
     WHERE k.contype = 'f'
    UNION ALL
    -- An enabled trigger of the user that fires for each inserted row: tgtype has the bits ROW (1) and INSERT (4).
    SELECT g.tgrelid,
           'trigger',
           g.tgname,
           p.proname,
           NULL,
           p.procost,
           false,
           false
      FROM pg_catalog.pg_trigger AS g
      JOIN pg_catalog.pg_proc AS p ON p.oid = g.tgfoid
     WHERE NOT g.tgisinternal
       AND g.tgenabled IN ('O', 'A')
       AND g.tgtype & 5 = 5
    UNION ALL
    SELECT i.indrelid,
           'index',
           c.relname,
           a.amname,
           NULL,
           CASE
               WHEN i.indexprs IS NOT NULL OR i.indpred IS NOT NULL THEN coalesce(
                   (
                       SELECT pg_catalog.max(p.procost)
                         FROM pg_catalog.pg_depend AS d
                         JOIN pg_catalog.pg_proc AS p ON p.oid = d.refobjid
                        WHERE d.classid = 'pg_catalog.pg_class'::regclass
                          AND d.objid = i.indexrelid
                          AND d.refclassid = 'pg_catalog.pg_proc'::regclass
                   ),
                   1
               )
           END,
           EXISTS (
               SELECT
                 FROM pg_catalog.pg_attribute AS t
                WHERE t.attrelid = i.indexrelid AND t.attlen = -1
           ),
           i.indisunique OR i.indisexclusion
      FROM pg_catalog.pg_index AS i
      JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
      JOIN pg_catalog.pg_am AS a ON a.oid = c.relam
)
SELECT pg_catalog.to_jsonb(k) - 'relid'
       || pg_catalog.jsonb_build_object(
              'schemaname', f.schemaname, 'relname', f.relname, 'n_tup_ins', f.n_tup_ins
          ) AS counters
  FROM filled AS f
  JOIN costs AS k USING (relid)
 LIMIT 500;
