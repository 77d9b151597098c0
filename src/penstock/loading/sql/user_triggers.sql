-- user_triggers.sql: the enabled triggers of tables and of their partitions for some events, without those of constraints
-- returns (name); needs no privilege; PostgreSQL 14+
-- psql -v oids={1259} -v events=28 -f user_triggers.sql
--
-- The events are bits of tgtype: 4 INSERT, 8 DELETE, 16 UPDATE. Triggers of partitions for each statement do not fire.
SELECT DISTINCT pg_catalog.format('%I ON %s', g.tgname, g.tgrelid::regclass) AS name
  FROM pg_catalog.unnest(:'oids'::oid[]) AS r (oid)
 CROSS JOIN LATERAL (
       SELECT r.oid
       UNION
       SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(r.oid) AS p
   ) AS tree (oid)
  JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = tree.oid
       -- A copy that a table has of its parent's trigger counts, and the copies that its partitions have do not.
       -- PostgreSQL 14 marks copies as internal.
 WHERE (NOT g.tgisinternal OR (g.tgparentid <> 0 AND g.tgconstraint = 0))
   AND (g.tgparentid = 0 OR g.tgrelid = r.oid)
   AND (g.tgtype & :'events'::int) <> 0
   AND ((g.tgtype & 1) = 1 OR g.tgrelid = r.oid)
   AND g.tgenabled IN (
           'A',
           CASE pg_catalog.current_setting('session_replication_role')
               WHEN 'replica' THEN 'R'::"char"
               ELSE 'O'::"char"
           END
       )
 ORDER BY 1;
