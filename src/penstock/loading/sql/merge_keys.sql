-- merge_keys.sql: the unique indexes of a table, and whether each can be the key of INSERT ... ON CONFLICT
-- returns loading.land.merge_key.UniqueIndex; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f merge_keys.sql
--
-- The columns are the index's key columns, without those of INCLUDE; an expression is null. NULLS NOT DISTINCT exists
-- since PostgreSQL 15. Older servers lack its column, so it is read through JSON.
SELECT c.oid,
       c.relname::text AS name,
       i.indisprimary AS is_primary,
       i.indisvalid AND i.indisready AND i.indislive AS is_valid,
       i.indpred IS NOT NULL AS is_partial,
       NOT i.indimmediate AS is_deferrable,
       i.indisexclusion OR m.amname <> 'btree' AS is_exclusion,
       COALESCE((pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false) AS has_equal_nulls,
       ARRAY(
           SELECT a.attname::text
             FROM pg_catalog.generate_series(0, i.indnkeyatts - 1) AS k (position)
             LEFT JOIN pg_catalog.pg_attribute AS a
               ON a.attrelid = i.indrelid
              AND a.attnum = i.indkey[k.position]
              AND a.attnum <> 0
            ORDER BY k.position
       ) AS columns
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
 WHERE i.indrelid = :'oid'::oid
   AND i.indisunique
 ORDER BY i.indisprimary DESC,
          c.oid;
