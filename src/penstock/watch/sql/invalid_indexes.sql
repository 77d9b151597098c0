-- invalid_indexes.sql: indexes that are maintained but not used; none that is being built or dropped
-- returns (counters); needs no privilege, pg_read_all_stats for builds of other roles; PostgreSQL 14+
-- psql -f invalid_indexes.sql
--
-- DROP INDEX CONCURRENTLY makes an index invalid, and then waits for older transactions. Until it is done, its session
-- holds this lock. A standby does not show the builds of its primary.
SELECT pg_catalog.jsonb_build_object(
           'schemaname', n.nspname,
           'relname', t.relname,
           'indexrelname', c.relname
       ) AS counters
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_class AS t ON t.oid = i.indrelid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
 WHERE NOT pg_catalog.pg_is_in_recovery()
   AND NOT i.indisvalid
   AND i.indislive
   AND c.relkind = 'i'
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_stat_progress_create_index AS p
            WHERE p.relid = i.indrelid OR p.relid IS NULL
       )
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_locks AS l
             JOIN pg_catalog.pg_database AS d ON d.oid = l.database
            WHERE l.relation = i.indexrelid
              AND l.mode = 'ShareUpdateExclusiveLock'
              AND d.datname = pg_catalog.current_database()
       )
 LIMIT 20;
