-- ddl_snapshots.sql: client sessions of this database whose snapshot may be older than the end of a transaction
-- returns ddl.snapshots.OlderSnapshot; needs pg_read_all_stats for other users' sessions; PostgreSQL 14+
-- psql -v xid=3 -f ddl_snapshots.sql
--
-- backend_xmin is the oldest transaction that ran when the snapshot was taken: one that is above xid sees it ended. A
-- session listed may yet see it too, when another old transaction was running: it is told rather once too often.
SELECT a.pid,
       a.usename::text AS "user",
       a.application_name,
       a.state,
       a.xact_start AS transaction_start
  FROM pg_catalog.pg_stat_activity AS a
 WHERE a.datname = pg_catalog.current_database()
   AND a.backend_type = 'client backend'
   AND a.pid <> pg_catalog.pg_backend_pid()
   AND pg_catalog.age(a.backend_xmin) >= pg_catalog.age(:'xid'::xid)
 ORDER BY a.xact_start,
          a.pid;
