-- ddl_indexes.sql: the valid indexes of a table; `body` is what follows CREATE INDEX ... ON table
-- returns changes.tables.definition.IndexRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_indexes.sql
--
-- Needs penstock's own search_path, so that names are qualified. Invalid indexes remain after a failed CREATE INDEX
-- CONCURRENTLY. No query uses them, and pg_dump leaves them out too. `statistics_targets` has one element for each
-- column.
SELECT c.relname::text AS name,
       i.indisunique AS is_unique,
       CASE
           WHEN pg_catalog.starts_with(definition.whole, definition.head)
           THEN pg_catalog.substr(definition.whole, pg_catalog.length(definition.head) + 1)
       END AS body,
       (
           SELECT k.conname::text
             FROM pg_catalog.pg_constraint AS k
            WHERE k.conindid = i.indexrelid
              AND k.conrelid = i.indrelid
              AND k.contype IN ('p', 'u', 'x')
       ) AS constraint_name,
       COALESCE(s.spcname, '')::text AS tablespace,
       COALESCE(c.reloptions, '{}') AS options,
       i.indisclustered AS is_clustered,
       i.indisreplident AS is_replica_identity,
       ARRAY(
           SELECT NULLIF(a.attstattarget, -1)::int
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = i.indexrelid
            ORDER BY a.attnum
       ) AS statistics_targets,
       pg_catalog.obj_description(c.oid, 'pg_class') AS comment
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_class AS t ON t.oid = i.indrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
  LEFT JOIN pg_catalog.pg_tablespace AS s ON s.oid = c.reltablespace
 CROSS JOIN LATERAL (
           SELECT pg_catalog.pg_get_indexdef(i.indexrelid) AS whole,
                  pg_catalog.format(
                      'CREATE %sINDEX %I ON %s%I.%I ',
                      CASE WHEN i.indisunique THEN 'UNIQUE ' END,
                      c.relname,
                      CASE WHEN c.relkind = 'I' THEN 'ONLY ' END,
                      n.nspname,
                      t.relname
                  ) AS head
       ) AS definition
 WHERE i.indrelid = :'oid'::oid
   AND i.indisvalid
 ORDER BY c.relname;
