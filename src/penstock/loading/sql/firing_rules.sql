-- firing_rules.sql: the rules of a relation that rewrite an INSERT, UPDATE or DELETE of this session
-- returns loading.land.refusals.RuleRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f firing_rules.sql
--
-- The rule of a view, on SELECT, is not returned. Rules of partitions do not apply to statements on their parent. A
-- disabled rule on UPDATE is returned, because the server refuses INSERT ... ON CONFLICT for it too (rewriteHandler.c).
SELECT w.rulename::text AS name,
       CASE w.ev_type WHEN '2' THEN 'UPDATE' WHEN '3' THEN 'INSERT' ELSE 'DELETE' END AS event
  FROM pg_catalog.pg_rewrite AS w
 WHERE w.ev_class = :'oid'::oid
   AND w.ev_type IN ('2', '3', '4')
   AND (
           w.ev_type = '2'
           OR w.ev_enabled IN (
                  'A',
                  CASE pg_catalog.current_setting('session_replication_role')
                      WHEN 'replica' THEN 'R'::"char"
                      ELSE 'O'::"char"
                  END
              )
       )
 ORDER BY w.rulename;
