-- lock_holder.sql: the backend that has a lock of one key, given as its two halves
-- returns (pid); needs no privilege; PostgreSQL 14+
-- psql -v high=1 -v low=2 -f lock_holder.sql
SELECT l.pid
  FROM pg_catalog.pg_locks AS l
 WHERE l.locktype = 'advisory'
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
   AND l.classid = :'high'::oid
   AND l.objid = :'low'::oid
   AND l.objsubid = 1
   AND l.granted;
