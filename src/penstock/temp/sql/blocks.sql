-- blocks.sql: the tables with these names, their TOAST tables and their indexes, each with its blocks, the largest first
-- returns temp.replay.blocks.StoredBlocks; needs no privilege; PostgreSQL 14+
-- psql -v schemas='{public}' -v tables='{orders}' -f blocks.sql
SELECT DISTINCT
       r.oid::bigint AS oid,
       n.nspname::text AS schema,
       r.relname::text AS name,
       r.relkind IN ('r', 'm') AS is_table,
       pg_catalog.pg_relation_size(r.oid) / pg_catalog.current_setting('block_size')::bigint AS blocks
  FROM unnest(:'schemas'::text [], :'tables'::text []) AS named(schema, name)
  JOIN pg_catalog.pg_namespace AS n ON n.nspname = named.schema
  JOIN pg_catalog.pg_class AS t ON t.relnamespace = n.oid AND t.relname = named.name
 CROSS JOIN LATERAL (
           SELECT t.oid
            UNION ALL
           SELECT t.reltoastrelid
            UNION ALL
           SELECT i.indexrelid FROM pg_catalog.pg_index AS i WHERE i.indrelid IN (t.oid, t.reltoastrelid)
       ) AS part(oid)
  JOIN pg_catalog.pg_class AS r ON r.oid = part.oid
 WHERE r.relkind IN ('r', 'm', 't', 'i')
 ORDER BY blocks DESC, oid;
