-- undo_tables.sql: the tables for which a load has had records, and the transactions that have stored rows
-- returns removal.decide.UndoTable; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f undo_tables.sql
--
-- The system column xmin has the lower 32 bits of a transaction's number. After 2^31 later transactions another
-- transaction may have the same xmin. A ledger of an older version has no column `transaction`. Rows that were staged
-- were stored by the merge of their target, and their ranges have the transactions that staged them.
\set object_oid `cat ../../ledger/sql/parts/object_oid.sql`
\set origin `cat ../../ledger/sql/parts/origin.sql`
\set target_oid `cat ../../ledger/sql/parts/target_oid.sql`
SELECT coalesce(min(n.nspname::text), min(s.schema)) AS schema,
       coalesce(min(c.relname::text), min(s.name)) AS name,
       s.oid::bigint,
       min(c.relkind::text) AS kind,
       s.is_here,
       coalesce(
           pg_catalog.has_table_privilege(s.oid, 'DELETE')
           AND (pg_catalog.has_table_privilege(s.oid, 'SELECT') OR pg_catalog.has_any_column_privilege(s.oid, 'SELECT')),
           false
       ) AS may_delete,
       ARRAY(
           SELECT pg_catalog.format(
                      '%s (%s): %s',
                      k.conrelid::regclass,
                      k.conname,
                      CASE k.confdeltype
                          WHEN 'c' THEN 'deletes its rows, too'
                          WHEN 'n' THEN 'sets its columns to null'
                          WHEN 'd' THEN 'sets its columns to their defaults'
                          ELSE 'refuses to delete rows that it has'
                      END
                  )
             FROM pg_catalog.pg_constraint AS k
            WHERE k.contype = 'f'
              AND k.confrelid = s.oid
              AND k.conparentid = 0
            ORDER BY 1
       ) AS referrers,
       ARRAY(
           SELECT l.id::text
             FROM ONLY :"ledger".loads AS l
             JOIN ONLY :"ledger".loads AS b ON b.id = :'load'
            WHERE l.id <> b.id
              AND (l.event > coalesce(b.begin_event, b.event) OR l.state = 'running')
              AND EXISTS (
                      SELECT
                        FROM ONLY :"ledger".targets AS t
                       WHERE t.load = l.id
                         AND t.existing > 0
                         AND :target_oid = s.oid
                  )
            ORDER BY l.event
       ) AS skipping,
       pg_catalog.sum(s.rows)::int8 AS rows,
       pg_catalog.sum(s.suppressed)::int8 AS suppressed,
       pg_catalog.bool_and(s.transaction IS NOT NULL) AS is_known,
       pg_catalog.bool_or(s.is_imported) AS is_imported,
       coalesce(
           pg_catalog.bool_or(
               pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::numeric - s.transaction::text::numeric
               >= 2147483648
           ),
           false
       ) AS is_old,
       coalesce(
           pg_catalog.array_agg(DISTINCT s.transaction::xid::text) FILTER (WHERE s.transaction IS NOT NULL), '{}'
       ) AS transactions
  FROM (
           SELECT o.target_schema::text AS schema,
                  o.target_table::text AS name,
                  :object_oid AS oid,
                  o.origin = :origin AS is_here,
                  r.rows,
                  r.suppressed,
                  (pg_catalog.to_jsonb(r) ->> 'transaction')::xid8 AS transaction,
                  o.unit = 'object' AS is_imported
             FROM ONLY :"ledger".objects AS o
             JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
            WHERE o.load = :'load'
              AND (r.rows <> 0 OR r.suppressed <> 0)
              AND NOT EXISTS (
                      SELECT
                        FROM ONLY :"ledger".targets AS t
                       WHERE t.load = o.load
                         AND t.kind = 'staging'
                         AND :target_oid = :object_oid
                  )
            UNION ALL
           SELECT t.target_schema::text,
                  t.target_table::text,
                  :target_oid,
                  t.origin = :origin,
                  t.inserted,
                  t.suppressed,
                  (pg_catalog.to_jsonb(t) ->> 'transaction')::xid8,
                  false
             FROM ONLY :"ledger".targets AS t
            WHERE t.load = :'load'
              AND t.kind = 'staging'
              AND (t.inserted <> 0 OR t.suppressed <> 0)
       ) AS s
  LEFT JOIN pg_catalog.pg_class AS c ON c.oid = s.oid
  LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 GROUP BY s.oid, s.is_here
 ORDER BY 1, 2;
