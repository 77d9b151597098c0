-- ddl_triggers.sql: the triggers that users made on a table; CREATE TRIGGER is `head` ON table `body`
-- returns ddl.definition.TriggerRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_triggers.sql
--
-- Needs penstock's own search_path. Bits of tgtype: 2 before, 64 instead of; 4 insert, 8 delete, 16 update, 32 truncate
-- (pg_trigger.h). `head` is put together as pg_get_triggerdef does it; should it ever differ, `body` is null.
WITH own AS (
    SELECT g.*,
           pg_catalog.format('%I.%I', n.nspname, c.relname) AS table_name,
           pg_catalog.format(
               'CREATE %sTRIGGER %I %s %s',
               CASE WHEN g.tgconstraint <> 0 THEN 'CONSTRAINT ' END,
               g.tgname,
               CASE WHEN g.tgtype & 2 <> 0 THEN 'BEFORE' WHEN g.tgtype & 64 <> 0 THEN 'INSTEAD OF' ELSE 'AFTER' END,
               pg_catalog.array_to_string(
                   ARRAY[
                       CASE WHEN g.tgtype & 4 <> 0 THEN 'INSERT' END,
                       CASE WHEN g.tgtype & 8 <> 0 THEN 'DELETE' END,
                       CASE WHEN g.tgtype & 16 <> 0 THEN 'UPDATE' || COALESCE(' OF ' || columns.list, '') END,
                       CASE WHEN g.tgtype & 32 <> 0 THEN 'TRUNCATE' END
                   ],
                   ' OR '
               )
           ) AS head
      FROM pg_catalog.pg_trigger AS g
      JOIN pg_catalog.pg_class AS c ON c.oid = g.tgrelid
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     CROSS JOIN LATERAL (
               SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY u.position) AS list
                 FROM pg_catalog.unnest(g.tgattr::int2[]) WITH ORDINALITY AS u (attnum, position)
                 JOIN pg_catalog.pg_attribute AS a ON a.attrelid = g.tgrelid AND a.attnum = u.attnum
           ) AS columns
     WHERE g.tgrelid = :'oid'::oid
       AND NOT g.tgisinternal
)
SELECT own.tgname::text AS name,
       own.head,
       CASE
           WHEN pg_catalog.starts_with(definition.whole, own.head || ' ON ' || own.table_name || ' ')
           THEN pg_catalog.substr(
                    definition.whole, pg_catalog.length(own.head || ' ON ' || own.table_name || ' ') + 1
                )
       END AS body,
       own.tgenabled::text AS enabled,
       pg_catalog.obj_description(own.oid, 'pg_trigger') AS comment
  FROM own
 CROSS JOIN LATERAL (SELECT pg_catalog.pg_get_triggerdef(own.oid) AS whole) AS definition
 ORDER BY own.tgname;
