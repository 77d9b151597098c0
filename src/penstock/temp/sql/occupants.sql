-- occupants.sql: the objects of this database in a tablespace, including temporary tables of all sessions
-- returns temp.place.kind.OccupantRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1663 -f occupants.sql
--
-- A partitioned table or index stores nothing, but new partitions get its tablespace. TOAST moves with its table.
SELECT CASE c.relkind
           WHEN 'm' THEN 'materialized view'
           WHEN 'i' THEN 'index'
           WHEN 'I' THEN 'index'
           ELSE 'table'
       END AS kind,
       pg_catalog.format('%I.%I', n.nspname, c.relname) AS name,
       c.relpersistence = 't' AS is_temporary
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n
    ON n.oid = c.relnamespace
 WHERE c.reltablespace = :'oid'::oid
   AND c.relkind IN ('r', 'i', 'm', 'p', 'I')
   AND NOT pg_catalog.starts_with(n.nspname::text, 'pg_toast')
 ORDER BY n.nspname, c.relname;
