-- unindexed_keys.sql: foreign keys without an index on the referring table that begins with their columns
-- returns (counters); needs no privilege; PostgreSQL 14+
-- psql -f unindexed_keys.sql
SELECT pg_catalog.jsonb_build_object(
           'schemaname', n.nspname,
           'relname', c.relname,
           'columns', (
               SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY k.place)
                 FROM pg_catalog.unnest(f.conkey) WITH ORDINALITY AS k (number, place)
                 JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = k.number
           ),
           'referenced', r.relname
       ) AS counters
  FROM pg_catalog.pg_constraint AS f
  JOIN pg_catalog.pg_class AS c ON c.oid = f.conrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_class AS r ON r.oid = f.confrelid
 WHERE f.contype = 'f'
   AND c.relkind = 'r'
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_index AS i
            WHERE i.indrelid = f.conrelid
              AND i.indisvalid
              AND i.indpred IS NULL
              AND (i.indkey::int2[])[0:pg_catalog.cardinality(f.conkey) - 1] @> f.conkey
       )
 LIMIT 200;
