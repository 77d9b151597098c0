-- tables.sql: the 200 tables with the most rows read one after the other, or dead, and whether they have statistics
-- returns (counters); needs no privilege; PostgreSQL 14+
-- psql -f tables.sql
--
-- reltuples is -1 until the table's first VACUUM or ANALYZE.
SELECT pg_catalog.jsonb_build_object(
           'schemaname', t.schemaname,
           'relname', t.relname,
           'seq_scan', t.seq_scan,
           'seq_tup_read', t.seq_tup_read,
           'idx_scan', t.idx_scan,
           'n_live_tup', t.n_live_tup,
           'n_dead_tup', t.n_dead_tup,
           'reltuples', c.reltuples
       ) AS counters
  FROM pg_catalog.pg_stat_user_tables AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.relid
 WHERE t.n_live_tup + t.n_dead_tup + t.seq_tup_read >= 10000
 ORDER BY t.seq_tup_read + t.n_dead_tup DESC
 LIMIT 200;
