-- ddl_table.sql: a table itself: where and how it is kept, by whom, and what else it belongs to
-- returns ddl.definition.TableRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_table.sql
SELECT c.oid,
       c.relname::text AS name,
       n.nspname::text AS schema,
       pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted_name,
       c.relkind::text AS kind,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       c.relpersistence::text AS persistence,
       m.amname::text AS access_method,
       COALESCE(s.spcname, '')::text AS tablespace,
       COALESCE(c.reloptions, '{}') AS options,
       COALESCE(t.reloptions, '{}') AS toast_options,
       c.relreplident::text AS replica_identity,
       c.relrowsecurity AS has_row_security,
       c.relforcerowsecurity AS forces_row_security,
       c.relispartition AS is_partition,
       CASE WHEN c.reloftype <> 0 THEN pg_catalog.format_type(c.reloftype, NULL) END AS of_type,
       ARRAY(
           SELECT pg_catalog.format('%I.%I', pn.nspname, p.relname)
             FROM pg_catalog.pg_inherits AS h
             JOIN pg_catalog.pg_class AS p ON p.oid = h.inhparent
             JOIN pg_catalog.pg_namespace AS pn ON pn.oid = p.relnamespace
            WHERE h.inhrelid = c.oid
            ORDER BY h.inhseqno
       ) AS parents,
       pg_catalog.obj_description(c.oid, 'pg_class') AS comment
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_am AS m ON m.oid = c.relam
  LEFT JOIN pg_catalog.pg_tablespace AS s ON s.oid = c.reltablespace
  LEFT JOIN pg_catalog.pg_class AS t ON t.oid = c.reltoastrelid
 WHERE c.oid = :'oid'::oid;
