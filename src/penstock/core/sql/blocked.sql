-- blocked.sql: those of the given backends that wait for a lock, and the sessions that block them
-- returns core.catalogue.catalog.BlockedRow; needs no privilege, pg_read_all_stats to describe other sessions; PostgreSQL 14+
-- psql -v pids='{1,2}' -f blocked.sql
--
-- `waits_for_own` is true if the wait could last for ever: the backend waits for the transaction of another backend of
-- the load; or it waits behind a session outside the load that waits for a table which an idle session of the load has
-- locked. Other locks (a relation's extension, a page) are released after a moment. A prepared transaction has pid 0.
-- `gids` are those of prepared transactions that hold the lock for which the backend waits.
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
                      WHEN b.pid = 0 THEN pg_catalog.concat_ws(
                          ' ', 'prepared transaction', pg_catalog.array_to_string(prepared.gids, ', ')
                      )
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
       ) AS others,
       prepared.gids
  FROM unnest(:'pids'::int[]) AS own (pid)
  CROSS JOIN LATERAL (
            SELECT ARRAY(
                       SELECT DISTINCT p.gid
                         FROM pg_catalog.pg_prepared_xacts AS p
                         JOIN pg_catalog.pg_locks AS own_id ON own_id.transactionid = p.transaction AND own_id.granted
                         JOIN pg_catalog.pg_locks AS l
                           ON l.pid IS NULL
                          AND l.virtualtransaction = own_id.virtualtransaction
                         JOIN pg_catalog.pg_locks AS w
                           ON w.pid = own.pid
                          AND NOT w.granted
                          AND (w.locktype, w.database, w.relation, w.page, w.tuple, w.transactionid)
                              IS NOT DISTINCT FROM
                              (l.locktype, l.database, l.relation, l.page, l.tuple, l.transactionid)
                          AND (w.classid, w.objid, w.objsubid) IS NOT DISTINCT FROM (l.classid, l.objid, l.objsubid)
                        WHERE 0 = ANY (pg_catalog.pg_blocking_pids(own.pid))
                   ) AS gids
        ) AS prepared
 WHERE pg_catalog.cardinality(pg_catalog.pg_blocking_pids(own.pid)) > 0;
