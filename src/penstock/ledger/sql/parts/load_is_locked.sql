-- load_is_locked.sql: whether a backend of this database has the lock of load l
EXISTS (
    SELECT
      FROM pg_catalog.pg_locks AS k
     WHERE k.locktype = 'advisory'
       AND k.granted
       AND k.objsubid = 1
       AND k.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
       AND k.classid = ('x' || pg_catalog.substr(l.lock_key, 1, 8))::bit(32)::int8::oid
       AND k.objid = ('x' || pg_catalog.substr(l.lock_key, 9, 8))::bit(32)::int8::oid
)
