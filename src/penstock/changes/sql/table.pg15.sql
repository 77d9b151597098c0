-- table.pg15.sql: a table to drop indexes and keys of: owner, rights, publications (also of schemas)
-- returns changes.tables.parts.ShapeTable; needs no privilege; PostgreSQL 15+
-- psql -v oid=1259 -f table.pg15.sql
--
-- Subscribers of a published table may identify updated rows by a unique index. A partition is published with its
-- parents. `parent_oid` is the table of which it is a partition. `lock_count` is how many locks all sessions together
-- can hold. Since PostgreSQL 19, a publication FOR ALL TABLES can exclude tables; `prexcept` is read through JSON.
WITH line AS (
    SELECT :'oid'::oid AS oid
    UNION
    SELECT a.relid::oid
      FROM pg_catalog.pg_partition_ancestors(:'oid'::oid::regclass) AS a
)
SELECT c.oid,
       n.nspname::text AS schema,
       c.relname::text AS name,
       pg_catalog.format('%I.%I', n.nspname, c.relname) AS quoted_name,
       c.relkind::text AS kind,
       pg_catalog.pg_get_userbyid(c.relowner)::text AS owner,
       pg_catalog.pg_has_role(c.relowner, 'USAGE') AS is_owner,
       pg_catalog.has_schema_privilege(c.relnamespace, 'CREATE') AS may_create,
       (SELECT h.inhparent FROM pg_catalog.pg_inherits AS h WHERE h.inhrelid = c.oid AND c.relispartition) AS parent_oid,
       c.relreplident::text AS replica_identity,
       EXISTS (
           SELECT
             FROM pg_catalog.pg_publication AS p
            WHERE p.puballtables
              AND NOT EXISTS (
                      SELECT
                        FROM pg_catalog.pg_publication_rel AS r
                        JOIN line ON line.oid = r.prrelid
                       WHERE r.prpubid = p.oid
                         AND pg_catalog.to_jsonb(r) ->> 'prexcept' = 'true'
                  )
       )
       OR EXISTS (
           SELECT
             FROM pg_catalog.pg_publication_rel AS r
             JOIN line ON line.oid = r.prrelid
            WHERE pg_catalog.to_jsonb(r) ->> 'prexcept' IS DISTINCT FROM 'true'
       )
       OR EXISTS (
           SELECT
             FROM pg_catalog.pg_publication_namespace AS s
             JOIN pg_catalog.pg_class AS l ON l.relnamespace = s.pnnspid
             JOIN line ON line.oid = l.oid
       ) AS is_published,
       (
           SELECT COALESCE(
                      pg_catalog.jsonb_object_agg(a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)), '{}'
                  )
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = c.oid
              AND a.attnum > 0
              AND NOT a.attisdropped
       ) AS columns,
       pg_catalog.current_setting('max_locks_per_transaction')::bigint * (
           pg_catalog.current_setting('max_connections')::bigint
           + pg_catalog.current_setting('max_prepared_transactions')::bigint
       ) AS lock_count
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.oid = :'oid'::oid;
