-- shape_table.sql: a table whose indexes and keys may be parked: whose it is, and what the current role may do there
-- returns shape.parts.ShapeTable; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f shape_table.sql
--
-- A unique index of a published table may be what tells its subscribers which row an UPDATE was of.
SELECT c.oid,
       n.nspname::text AS schema,
       c.relname::text AS name,
       pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted_name,
       c.relkind::text AS kind,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS is_owner,
       pg_catalog.has_schema_privilege(c.relnamespace, 'CREATE') AS may_create,
       c.relreplident::text AS replica_identity,
       EXISTS (
           SELECT
             FROM pg_catalog.pg_publication_tables AS p
            WHERE p.schemaname = n.nspname
              AND p.tablename = c.relname
       )
       OR EXISTS (
           SELECT
             FROM pg_catalog.pg_publication_rel AS r
            WHERE r.prrelid = c.oid
       ) AS is_published,
       (
           SELECT COALESCE(
                      pg_catalog.jsonb_object_agg(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)), '{}'
                  )
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = c.oid
              AND a.attnum > 0
              AND NOT a.attisdropped
       ) AS columns
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = :'oid'::oid;
