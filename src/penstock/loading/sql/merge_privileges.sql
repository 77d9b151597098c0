-- merge_privileges.sql: what this role may do with each column of a table
-- returns loading.land.merge_key.ColumnPrivileges; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f merge_privileges.sql
SELECT a.attname::text AS name,
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT') AS can_select,
       pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'UPDATE') AS can_update
  FROM pg_catalog.pg_attribute AS a
 WHERE a.attrelid = :'oid'::oid
   AND a.attnum > 0
   AND NOT a.attisdropped
 ORDER BY a.attnum;
