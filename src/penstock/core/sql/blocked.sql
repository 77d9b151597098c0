-- blocked.sql: those of the given backends that wait for a lock, and the sessions that block them
-- returns core.catalogue.catalog.BlockedRow; needs no privilege, pg_read_all_stats to describe other sessions; PostgreSQL 14+
-- psql -v pids='{1,2}' -f blocked.sql
--
-- `waits_for_own` is true if the wait could last for ever: the backend waits for the transaction of another backend of
-- the load; or it waits behind a session outside the load that waits for a table which an idle session of the load has
-- locked. Other locks (a relation's extension, a page) are released after a moment. A prepared transaction has pid 0.
SELECT own.pid,
       pg_catalog.pg_blocking_pids(own.pid) && :'pids'::int[]
       AND EXISTS (
               SELECT
                 FROM pg_catalog.pg_locks AS l
                WHERE l.pid = own.pid
                  AND NOT l.granted
                  AND l.locktype IN ('transactionid', 'spectoken', 'tuple', 'advisory')
           )
       OR EXISTS (
              SELECT
                FROM unnest(pg_catalog.pg_blocking_pids(own.pid)) AS queued (pid),
                     unnest(pg_catalog.pg_blocking_pids(queued.pid)) AS idle (pid)
                JOIN pg_catalog.pg_stat_activity AS s ON s.pid = idle.pid
               WHERE queued.pid <> ALL (:'pids'::int[])
                 AND idle.pid = ANY (:'pids'::int[])
                 AND s.state = 'idle in transaction'
          ) AS waits_for_own,
       ARRAY(
           SELECT CASE
                      WHEN b.pid = 0 THEN 'a prepared transaction'
                      ELSE pg_catalog.concat_ws(
                          ', ',
                          'backend ' || b.pid,
                          'user ' || a.usename,
                          '"' || nullif(a.application_name, '') || '"',
                          a.state,
                          'since ' || pg_catalog.to_char(a.state_change, 'YYYY-MM-DD HH24:MI:SS')
                      )
                  END
             FROM unnest(pg_catalog.pg_blocking_pids(own.pid)) AS b (pid)
             LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = b.pid
            WHERE b.pid <> ALL (:'pids'::int[])
            ORDER BY b.pid
       ) AS others
  FROM unnest(:'pids'::int[]) AS own (pid)
 WHERE pg_catalog.cardinality(pg_catalog.pg_blocking_pids(own.pid)) > 0;
