-- index_reads.sql: the blocks that were read from each index, and how many rows of its table have changed
-- returns (counters); needs no privilege; PostgreSQL 14+
-- psql -f index_reads.sql
SELECT pg_catalog.jsonb_build_object(
           'schemaname', i.schemaname,
           'relname', i.relname,
           'indexrelname', i.indexrelname,
           'idx_blks_read', i.idx_blks_read,
           'idx_blks_hit', i.idx_blks_hit,
           'idx_scan', pg_catalog.pg_stat_get_numscans(i.indexrelid),
           'n_tup_changed', t.n_tup_ins + t.n_tup_upd + t.n_tup_del
       ) AS counters
  FROM pg_catalog.pg_statio_user_indexes AS i
  JOIN pg_catalog.pg_stat_user_tables AS t USING (relid)
 WHERE t.n_tup_ins + t.n_tup_upd + t.n_tup_del > 0;
