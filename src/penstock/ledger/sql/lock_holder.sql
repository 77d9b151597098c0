-- lock_holder.sql: the backend that has a lock of one key, given as its two halves, or of two keys
-- returns ledger.locks.LockHolder; needs no privilege; PostgreSQL 14+
-- psql -v high=1 -v low=2 -v keys=1 -v schema=penstock -f lock_holder.sql
--
-- Any role that may connect can take any advisory lock. `is_stranger` is true if the backend's login could not write to
-- the ledger, as penstock does, with the rights of any role that it is a member of. A prepared transaction has no pid.
SELECT l.pid,
       p.gid,
       COALESCE(a.usename::text, p.owner::text) AS role,
       NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_roles AS r
            WHERE pg_catalog.pg_has_role(a.usesysid, r.oid, 'MEMBER')
              AND pg_catalog.has_table_privilege(
                      r.oid,
                      pg_catalog.to_regclass(pg_catalog.format('%I.loads', :'schema'::text)),
                      'INSERT'
                  )
       ) AS is_stranger
  FROM pg_catalog.pg_locks AS l
  LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
  LEFT JOIN (
           pg_catalog.pg_prepared_xacts AS p
           JOIN pg_catalog.pg_locks AS own_id ON own_id.transactionid = p.transaction AND own_id.pid IS NULL
       ) ON l.pid IS NULL AND own_id.virtualtransaction = l.virtualtransaction
 WHERE l.locktype = 'advisory'
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
   AND l.classid = :'high'::bigint::oid
   AND l.objid = :'low'::bigint::oid
   AND l.objsubid = :'keys'::int
   AND l.granted;
