-- workers.sql: the other backends of this database that have or want a lock of two keys
-- returns (pid); needs no privilege; PostgreSQL 14+
-- psql -v space=1 -v key=2 -f workers.sql
SELECT l.pid
  FROM pg_catalog.pg_locks AS l
 WHERE l.locktype = 'advisory'
   AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
   AND l.classid = :'space'::oid
   AND l.objid = :'key'::oid
   AND l.objsubid = 2
   AND l.pid <> pg_catalog.pg_backend_pid()
 ORDER BY l.pid;
