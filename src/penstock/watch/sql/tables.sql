-- tables.sql: the 200 tables with the most dead rows or rows read by sequential scans, with their counters
-- returns (counters); needs SELECT on a table to tell that it was never analyzed; PostgreSQL 14+
-- psql -f tables.sql
--
-- A crash or a promotion removes the counters. So if they show no VACUUM and no ANALYZE, the rows that pg_class has are
-- live, too. If the counters show no ANALYZE, pg_stats is read. In pg_stats, a role sees only
-- columns that it may read. reltuples does not show an ANALYZE, because CREATE INDEX sets it too. Statements name the
-- root of a partition, not the partition.
SELECT pg_catalog.jsonb_build_object(
           'schemaname', t.schemaname,
           'relname', t.relname,
           'root', (SELECT r.relname FROM pg_catalog.pg_class AS r WHERE r.oid = pg_catalog.pg_partition_root(c.oid)),
           'seq_scan', t.seq_scan,
           'seq_tup_read', t.seq_tup_read,
           'idx_scan', coalesce(t.idx_scan, 0),
           'idx_tup_fetch', coalesce(t.idx_tup_fetch, 0),
           -- Blocks of the table that were read or found in shared buffers.
           'heap_blks', pg_catalog.pg_stat_get_blocks_fetched(c.oid),
           'n_tup_ins', t.n_tup_ins,
           'n_tup_changed', t.n_tup_ins + t.n_tup_upd + t.n_tup_del,
           'n_live_tup', CASE
               WHEN COALESCE(t.last_vacuum, t.last_autovacuum, t.last_analyze, t.last_autoanalyze) IS NULL
               THEN GREATEST(t.n_live_tup, c.reltuples::bigint - t.n_tup_del)
               ELSE t.n_live_tup
           END,
           'n_dead_tup', t.n_dead_tup,
           'n_mod_since_analyze', t.n_mod_since_analyze,
           'relpages', c.relpages,
           'reltuples', c.reltuples,
           'has_index', c.relhasindex,
           'fillfactor', (
               SELECT o.option_value::int
                 FROM pg_catalog.pg_options_to_table(c.reloptions) AS o
                WHERE o.option_name = 'fillfactor'
           ),
           -- A row's header and its line pointer take 28 bytes.
           'row_bytes', 28 + (
               SELECT pg_catalog.sum(s.avg_width)
                 FROM pg_catalog.pg_stats AS s
                WHERE s.schemaname = t.schemaname AND s.tablename = t.relname
           ),
           'vacuumed_s', pg_catalog.date_part(
               'epoch', pg_catalog.clock_timestamp() - GREATEST(t.last_vacuum, t.last_autovacuum)
           ),
           'analyzed_s', pg_catalog.date_part(
               'epoch', pg_catalog.clock_timestamp() - GREATEST(t.last_analyze, t.last_autoanalyze)
           ),
           'is_analyzed', t.last_analyze IS NOT NULL
                          OR t.last_autoanalyze IS NOT NULL
                          OR NOT pg_catalog.has_table_privilege(c.oid, 'SELECT')
                          OR pg_catalog.row_security_active(c.oid)
                          OR EXISTS (
                                 SELECT
                                   FROM pg_catalog.pg_stats AS s
                                  WHERE s.schemaname = t.schemaname AND s.tablename = t.relname
                             )
       ) AS counters
  FROM pg_catalog.pg_stat_user_tables AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.relid
 WHERE t.n_live_tup + t.n_dead_tup + t.seq_tup_read >= 10000
    OR c.relpages >= 1000
 ORDER BY t.seq_tup_read + t.n_dead_tup DESC
 LIMIT 200;
