-- drop_jobs.sql: delete the jobs and meanings of some loads, and return their size
-- returns (size_bytes); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v loads='{00000000-0000-0000-0000-000000000001}' -f drop_jobs.sql
--
-- The modes of the targets are kept: they say what has become of the rows of other loads. A role may write only its own
-- login, so the login of another role is set to null.
WITH old AS (
    SELECT l.id, coalesce(pg_catalog.pg_column_size(l.job), 0) + pg_catalog.pg_column_size(l.meaning) AS size_bytes
      FROM ONLY :"ledger".loads AS l
     WHERE l.id = ANY (:'loads')
), slim AS (
    UPDATE ONLY :"ledger".loads AS l
       SET job = NULL,
           meaning = pg_catalog.jsonb_build_object(
               'modes', pg_catalog.jsonb_path_query_array(l.meaning, '$.targets[*].mode')
           ),
           login = CASE WHEN l.login = SESSION_USER THEN l.login END
      FROM old
     WHERE l.id = old.id
    RETURNING old.size_bytes
)
SELECT coalesce(sum(s.size_bytes), 0)::bigint AS size_bytes FROM slim AS s;
