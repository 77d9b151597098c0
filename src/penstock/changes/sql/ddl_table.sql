-- ddl_table.sql: a table itself: its owner, persistence, access method and tablespace
-- returns changes.tables.definition.DdlTableRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_table.sql
SELECT c.oid,
       c.relname::text AS name,
       n.nspname::text AS schema,
       pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted_name,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       c.relpersistence::text AS persistence,
       m.amname::text AS access_method,
       COALESCE(s.spcname, '')::text AS tablespace
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
  LEFT JOIN pg_catalog.pg_tablespace AS s ON s.oid = c.reltablespace
 WHERE c.oid = :'oid'::oid;
