-- other_ledgers.sql: the ledgers of this database, except in one schema, and whether this role may read their objects
-- returns ledger.lookup.OtherLedger; needs no privilege; PostgreSQL 14+
-- psql -v schema=penstock -f other_ledgers.sql
--
-- A ledger is known by its comment. If that was lost, as in a dump without comments, it is known by columns of table
-- objects that all versions have.
SELECT n.nspname::text AS schema,
       pg_catalog.obj_description(l.oid, 'pg_class') AS comment,
       pg_catalog.obj_description(o.oid, 'pg_class') AS creator,
       COALESCE(
           pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(o.oid, 'SELECT'),
           false
       ) AS may_read
  FROM pg_catalog.pg_class AS l
  JOIN pg_catalog.pg_namespace AS n ON n.oid = l.relnamespace
  LEFT JOIN pg_catalog.pg_class AS o
    ON o.relnamespace = l.relnamespace
   AND o.relname = 'objects'
   AND o.relkind = 'r'
 WHERE l.relname = 'loads'
   AND l.relkind = 'r'
   AND l.relpersistence <> 't'
   AND n.nspname <> :'schema'::text
   AND (
           pg_catalog.obj_description(l.oid, 'pg_class') LIKE 'penstock ledger, version %'
        OR 6 = (
               SELECT pg_catalog.count(*)
                 FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = o.oid
                  AND a.attname IN ('load', 'number', 'target_oid', 'target_schema', 'target_table', 'uri')
           )
       )
 ORDER BY n.nspname;
