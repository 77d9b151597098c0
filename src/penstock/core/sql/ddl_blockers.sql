-- ddl_blockers.sql: sessions that hold or await a lock on one of the given relations, holders first
-- returns core.catalogue.locking.Blocker; needs no privilege, pg_read_all_stats to see state and query; PostgreSQL 14+
-- psql -v relations='{1259}' -f ddl_blockers.sql
--
-- A prepared transaction holds locks without a backend: its pid is null, and application_name has its gid.
SELECT l.pid,
       COALESCE(a.usename::text, p.owner::text) AS "user",
       COALESCE(a.application_name, p.gid) AS application_name,
       CASE WHEN l.pid IS NULL THEN 'prepared transaction' ELSE COALESCE(a.state, a.backend_type) END AS state,
       a.query_start,
       COALESCE(a.xact_start, p.prepared) AS transaction_start,
       a.query,
       l.relation::regclass::text AS relation,
       pg_catalog.max(l.mode) AS mode,
       pg_catalog.bool_or(l.granted) AS is_held
  FROM pg_catalog.pg_locks AS l
  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
  LEFT JOIN (
           pg_catalog.pg_prepared_xacts AS p
           JOIN pg_catalog.pg_locks AS own_id ON own_id.transactionid = p.transaction AND own_id.pid IS NULL
       ) ON l.pid IS NULL AND own_id.virtualtransaction = l.virtualtransaction
 WHERE l.locktype = 'relation'
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
   AND l.relation = ANY (:'relations'::oid[])
   AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
 ORDER BY is_held DESC,
          transaction_start NULLS LAST,
          l.pid;
