-- limit_lock_wait.sql: limit the session's lock_timeout, unless it is shorter
-- returns (lock_timeout); needs no privilege; PostgreSQL 14+
-- psql -v limit=1000 -f limit_lock_wait.sql
SELECT pg_catalog.set_config('lock_timeout', :'limit'::int::text, false) AS lock_timeout
  FROM pg_catalog.pg_settings AS s
 WHERE s.name = 'lock_timeout'
   AND s.setting::int NOT BETWEEN 1 AND :'limit';
