-- blocked.sql: those of the given backends that wait for what another of them does in its transaction
-- returns conflicts.BlockedRow; needs no privilege; PostgreSQL 14+
-- psql -v pids='{1,2}' -f blocked.sql
--
-- Other locks (a relation's extension, a page) are held for moments, and whoever holds them moves on.
SELECT own.pid
  FROM unnest(:'pids'::int[]) AS own (pid)
 WHERE pg_catalog.pg_blocking_pids(own.pid) && :'pids'::int[]
   AND EXISTS (
           SELECT
             FROM pg_catalog.pg_locks AS l
            WHERE l.pid = own.pid
              AND NOT l.granted
              AND l.locktype IN ('transactionid', 'spectoken', 'tuple', 'advisory')
       );
