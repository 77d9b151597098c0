-- undo_tables.sql: the tables for which a load has had records, and the transactions that have stored rows
-- returns removal.decide.UndoTable; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f undo_tables.sql
--
-- The system column xmin has the lower 32 bits of a transaction's number. After 2^31 later transactions another
-- transaction may have the same xmin. A ledger of an older version has no column `transaction`. Rows that were staged
-- were stored by the merge of their target, and their ranges have the transactions that staged them. Rows of a new table
-- that an unfinished load fills are removed with that table.
--
-- A trigger on INSERT may have updated other rows of a table, which then have the load's transactions. It counts if it is
-- enabled, or a load has disabled it, and if its function is in a language that is not known here, runs EXECUTE, or has
-- the name of the table, a partition or a parent. No trigger has fired for a new table, which COPY fills before it
-- replaces another one or becomes a partition.
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
           AND pg_catalog.has_table_privilege(s.oid, 'SELECT'),
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
       ARRAY(
           SELECT DISTINCT pg_catalog.format('%I ON %s', g.tgname, g.tgrelid::regclass)
             FROM (
                      SELECT DISTINCT :object_oid AS oid
                        FROM ONLY :"ledger".objects AS o
                       WHERE o.load = :'load'
                         AND NOT EXISTS (
                                 SELECT
                                   FROM ONLY :"ledger".targets AS t
                                  WHERE t.load = o.load
                                    AND t.kind = 'replacement'
                                    AND :target_oid = :object_oid
                             )
                  ) AS own
            CROSS JOIN LATERAL (
                  SELECT own.oid
                  UNION
                  SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(own.oid) AS p
              ) AS line (oid)
             JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = line.oid
             JOIN pg_catalog.pg_proc AS f ON f.oid = g.tgfoid
             JOIN pg_catalog.pg_language AS l ON l.oid = f.prolang
            CROSS JOIN LATERAL pg_catalog.regexp_split_to_array(pg_catalog.lower(f.prosrc), '[^[:alnum:]_$]+') AS words
            WHERE g.tgtype & 4 <> 0
              AND (
                      g.tgenabled <> 'D'
                   OR EXISTS (
                          SELECT
                            FROM ONLY :"ledger".changes AS h
                           WHERE h.kind = 'trigger'
                             AND h.relation_oid = g.tgrelid
                             AND h.name = g.tgname::text
                      )
                  )
              AND l.lanname NOT IN ('internal', 'c')
              AND (
                      l.lanname <> 'plpgsql'
                   OR 'execute' = ANY (words)
                   OR EXISTS (
                          SELECT
                            FROM (
                                     SELECT s.oid
                                     UNION
                                     SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(s.oid) AS p
                                     UNION
                                     SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(s.oid) AS a
                                     UNION
                                     SELECT i.inhparent FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = s.oid
                                 ) AS named_line
                            JOIN pg_catalog.pg_class AS named ON named.oid = named_line.oid
                           WHERE pg_catalog.lower(named.relname) = ANY (words)
                              OR (
                                     named.relname ~ '[^[:alnum:]_$]'
                                 AND pg_catalog.strpos(
                                         pg_catalog.lower(f.prosrc),
                                         pg_catalog.lower(pg_catalog.replace(named.relname, '"', '""'))
                                     ) > 0
                                 )
                      )
                  )
            ORDER BY 1
       ) AS writers,
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
             JOIN ONLY :"ledger".loads AS l ON l.id = o.load
            WHERE o.load = :'load'
              AND (r.rows <> 0 OR r.suppressed <> 0)
              AND NOT EXISTS (
                      SELECT
                        FROM ONLY :"ledger".targets AS t
                       WHERE t.load = o.load
                         AND (t.kind = 'staging' OR (t.kind = 'replacement' AND l.state = 'running'))
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
