-- replay_facts.sql: what a replay must know of a session
-- returns (is_superuser, block_bytes, work_mem_bytes, shared_buffers_bytes, temp_tablespaces); needs no
--    privilege; PostgreSQL 14+
-- psql -f replay_facts.sql
--
-- is_superuser is about the session's user, because a function in a statement may call RESET ROLE or SET ROLE.
SELECT EXISTS (
           SELECT
             FROM pg_catalog.pg_roles AS r
            WHERE r.rolsuper
              AND pg_catalog.pg_has_role(SESSION_USER, r.oid, 'MEMBER')
       ) AS is_superuser,
       pg_catalog.current_setting('block_size')::int AS block_bytes,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('work_mem')) AS work_mem_bytes,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('shared_buffers')) AS shared_buffers_bytes,
       pg_catalog.current_setting('temp_tablespaces') AS temp_tablespaces;
