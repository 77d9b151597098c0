-- objects.sql: the objects of a load
-- returns ledger.values.ObjectRecord; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f objects.sql
\set all_objects `cat parts/all_objects.sql`
\set is_complete `cat parts/is_complete.sql`
SELECT number,
       "table",
       uri,
       version,
       size_bytes,
       is_complete,
       is_staged,
       rows,
       suppressed,
       rejected,
       bytes_committed,
       records,
       repeated,
       ctime_ns
  FROM (:all_objects) AS o
 WHERE o.load = :'load'
 ORDER BY o.number;
