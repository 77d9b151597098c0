-- attached.sql: the indexes or foreign keys of partitions that are attached to an index or key of the parent table
-- returns changes.tables.rebuild.AttachedRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v name=pg_class_oid_index -f attached.sql
--
-- An invalid foreign key is not attached to a valid one.
SELECT i.indrelid AS relation_oid,
       c.relname::text AS name,
       false AS is_foreign_key
  FROM pg_catalog.pg_index AS p
  JOIN pg_catalog.pg_class AS pc ON pc.oid = p.indexrelid
  JOIN pg_catalog.pg_inherits AS h ON h.inhparent = p.indexrelid
  JOIN pg_catalog.pg_index AS i ON i.indexrelid = h.inhrelid
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
 WHERE p.indrelid = :'oid'::oid
   AND pc.relname = :'name'::text
 UNION ALL
SELECT k.conrelid,
       k.conname::text,
       true
  FROM pg_catalog.pg_constraint AS p
  JOIN pg_catalog.pg_constraint AS k ON k.conparentid = p.oid
 WHERE p.contype = 'f'
   AND p.conrelid = :'oid'::oid
   AND p.conname = :'name'::text
   AND k.convalidated
 ORDER BY relation_oid,
          name;
