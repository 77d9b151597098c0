-- proof_tables.sql: what the ledger says of each table of a complete load
-- returns (schema, name, oid, kind, names, hides_rows, objects, records, inserted, updated, rejected, suppressed,
-- duplicates, existing, is_emptied, is_shared, is_gone); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f proof_tables.sql
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
SELECT coalesce(n.nspname, d.schema)::text AS schema,
       coalesce(c.relname, d.name)::text AS name,
       coalesce(c.oid, 0)::int8 AS oid,
       c.relkind::text AS kind,
       ARRAY[pg_catalog.concat_ws('.', nullif(d.schema, ''), d.name), d.name] AS names,
       coalesce(pg_catalog.row_security_active(c.oid), false) AS hides_rows,
       d.objects,
       d.records,
       CASE WHEN s.is_staged THEN s.inserted ELSE d.rows END AS inserted,
       s.updated,
       d.rejected,
       d.suppressed + s.suppressed AS suppressed,
       s.duplicates,
       s.existing,
       s.is_emptied,
       EXISTS (
           SELECT
             FROM ONLY :"ledger".objects AS o
             JOIN ONLY :"ledger".loads AS other ON other.id = o.load
            WHERE o.load <> l.id
              AND :object_oid = c.oid
              AND (NOT s.is_emptied OR other.changed_at > l.began_at)
       ) AS is_shared,
       c.oid IS NULL
       OR EXISTS (
           SELECT
             FROM ONLY :"ledger".targets AS t
             JOIN ONLY :"ledger".loads AS other ON other.id = t.load
            WHERE t.load <> l.id
              AND :target_oid = c.oid
              AND CASE
                      WHEN t.truncated_at IS NOT NULL THEN t.truncation_event
                      WHEN t.kind = 'replacement' AND other.state = 'complete' THEN other.event
                  END > l.event
       ) AS is_gone
  FROM ONLY :"ledger".loads AS l
  CROSS JOIN LATERAL (
           SELECT :object_oid AS oid,
                  min(o.target_schema::text) AS schema,
                  min(o.target_table::text) AS name,
                  pg_catalog.array_agg(DISTINCT o.number) AS objects,
                  coalesce(pg_catalog.sum(r.records), 0)::int8 AS records,
                  coalesce(pg_catalog.sum(r.rows), 0)::int8 AS rows,
                  coalesce(pg_catalog.sum(r.rejected), 0)::int8 AS rejected,
                  coalesce(pg_catalog.sum(r.suppressed), 0)::int8 AS suppressed
             FROM ONLY :"ledger".objects AS o
             LEFT JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
            WHERE o.load = l.id
            GROUP BY 1
       ) AS d
  LEFT JOIN pg_catalog.pg_class AS c ON c.oid = d.oid
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  CROSS JOIN LATERAL (
           SELECT coalesce(pg_catalog.bool_or(t.kind = 'staging'), false) AS is_staged,
                  coalesce(pg_catalog.sum(t.inserted), 0)::int8 AS inserted,
                  coalesce(pg_catalog.sum(t.updated), 0)::int8 AS updated,
                  coalesce(pg_catalog.sum(t.duplicates), 0)::int8 AS duplicates,
                  coalesce(pg_catalog.sum(t.existing), 0)::int8 AS existing,
                  coalesce(pg_catalog.sum(t.suppressed), 0)::int8 AS suppressed,
                  coalesce(pg_catalog.bool_or(t.truncated_at IS NOT NULL OR t.kind = 'replacement'), false)
                      AS is_emptied
             FROM ONLY :"ledger".targets AS t
            WHERE t.load = l.id
              AND :target_oid = c.oid
       ) AS s
 WHERE l.id = :'load'
 ORDER BY 1, 2;
