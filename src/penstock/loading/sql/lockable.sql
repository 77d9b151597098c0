-- lockable.sql: the given tables and views, in the order of their oids, and whether this role may lock them
-- returns loading.land.context.LockableRow; needs no privilege; PostgreSQL 14+
-- psql -v relations='{1259}' -v alone='{}' -f lockable.sql
--
-- Of `alone` and of ordinary tables, the partitions and the tables that inherit from them are not locked.
-- Before PostgreSQL 16, INSERT allows ROW EXCLUSIVE and no other mode.
SELECT c.oid,
       n.nspname AS schema,
       c.relname AS name,
       c.relkind::text AS kind,
       c.relkind = 'r' OR c.oid = ANY (:'alone'::oid[]) AS is_alone,
       pg_catalog.has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE') AS may_lock,
       pg_catalog.has_table_privilege(c.oid, 'INSERT') AS may_insert
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (:'relations'::oid[])
   AND c.relkind IN ('r', 'p', 'v')
   AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
 ORDER BY c.oid;
