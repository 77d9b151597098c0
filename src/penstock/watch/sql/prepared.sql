-- prepared.sql: the twenty oldest prepared transactions, with their locks and the sessions that wait for these
-- returns (counters); needs no privilege; PostgreSQL 14+
-- psql -f prepared.sql
--
-- A prepared transaction has no session. pg_blocking_pids reports it as pid 0, and pg_locks without a pid. The lock on
-- its transaction id tells its virtual transaction, which the server numbers anew when it starts.
WITH all_locks AS MATERIALIZED (
    SELECT l.*
      FROM pg_catalog.pg_locks AS l
),
locks AS (
    SELECT own_id.transactionid AS owner,
           l.*
      FROM all_locks AS own_id
      JOIN all_locks AS l ON l.virtualtransaction = own_id.virtualtransaction AND l.pid IS NULL
     WHERE own_id.pid IS NULL AND own_id.locktype = 'transactionid'
)
SELECT pg_catalog.jsonb_build_object(
           'gid', p.gid,
           'owner', p.owner::text,
           'datname', p.database::text,
           'age_s', pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - p.prepared),
           'xid_age', pg_catalog.age(p.transaction),
           'locks', (SELECT pg_catalog.count(*) FROM locks AS l WHERE l.owner = p.transaction),
           -- Only tables of this database can be named.
           'tables', ARRAY(
               SELECT DISTINCT c.relnamespace::regnamespace || pg_catalog.format('.%I', c.relname)
                 FROM locks AS l
                 JOIN pg_catalog.pg_class AS c ON c.oid = l.relation AND c.relkind IN ('r', 'p', 'm')
                WHERE l.owner = p.transaction
                  AND p.database = pg_catalog.current_database()
                ORDER BY 1
                LIMIT 5
           ),
           'blocks', ARRAY(
               SELECT DISTINCT w.pid
                 FROM locks AS l
                 JOIN all_locks AS w ON NOT w.granted
                                AND (w.locktype, w.database, w.relation, w.page, w.tuple, w.transactionid)
                                    IS NOT DISTINCT FROM
                                    (l.locktype, l.database, l.relation, l.page, l.tuple, l.transactionid)
                                AND (w.classid, w.objid, w.objsubid) IS NOT DISTINCT FROM (l.classid, l.objid, l.objsubid)
                WHERE l.owner = p.transaction
                  AND 0 = ANY (pg_catalog.pg_blocking_pids(w.pid))
           )
       ) AS counters
  FROM pg_catalog.pg_prepared_xacts AS p
 ORDER BY p.prepared
 LIMIT 20;
