-- triggers.sql: user triggers of a table and its partitions that fire on some of the given events
-- returns changes.tables.kinds.TriggerRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v events=4 -f triggers.sql
--
-- events are bits of tgtype (pg_trigger.h): 4 INSERT, 8 DELETE, 16 UPDATE. In PostgreSQL 14 the partitions' copies of
-- their parent's triggers are internal, as constraint triggers are. Statement triggers fire only for the table that the
-- statement names. Row triggers of a partitioned table fire only as its partitions' copies of them.
WITH tree AS (
    SELECT :'oid'::oid AS oid
    UNION
    SELECT p.relid::oid
      FROM pg_catalog.pg_partition_tree(:'oid'::oid::regclass) AS p
)
SELECT g.tgrelid AS relation_oid,
       g.tgname::text AS name,
       g.tgenabled::text AS state,
       g.tgtype::int AS type,
       g.tgfoid::int8 AS function_oid,
       c.relkind = 'p' AND (g.tgtype & 1) = 1 AS is_copied
  FROM tree AS t
  JOIN pg_catalog.pg_class AS c ON c.oid = t.oid
  JOIN pg_catalog.pg_trigger AS g ON g.tgrelid = c.oid
 WHERE (g.tgtype & :'events'::int) <> 0
   AND ((g.tgtype & 1) = 1 OR g.tgrelid = :'oid'::oid)
   AND (NOT g.tgisinternal OR (g.tgparentid <> 0 AND g.tgconstraint = 0))
 ORDER BY g.tgrelid,
          g.tgname;
