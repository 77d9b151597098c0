-- table.sql: what storing a row in a table involves, and the size of the table
-- returns core.values.inspection.TableCosts; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f table.sql
--
-- Indexes, foreign keys and triggers are those of the table itself. The size includes the partitions. The bit 4 of
-- tgtype is that of INSERT (pg_trigger.h).
SELECT (SELECT pg_catalog.count(*)::int FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid) AS indexes,
       (
           SELECT pg_catalog.count(*)::int
             FROM pg_catalog.pg_constraint AS k
            WHERE k.conrelid = c.oid
              AND k.contype = 'f'
       ) AS foreign_keys,
       ARRAY(
           SELECT g.tgname::text
             FROM pg_catalog.pg_trigger AS g
            WHERE g.tgrelid = c.oid
              AND NOT g.tgisinternal
              AND g.tgenabled <> 'D'
              AND g.tgtype & 4 <> 0
            ORDER BY 1
       ) AS insert_triggers,
       (
           SELECT COALESCE(pg_catalog.sum(pg_catalog.pg_total_relation_size(p.relid)), 0)::bigint
             FROM (
                      SELECT c.oid AS relid
                       WHERE c.relkind <> 'p'
                      UNION
                      SELECT t.relid::oid
                        FROM pg_catalog.pg_partition_tree(c.oid) AS t
                       WHERE t.isleaf
                  ) AS p
       ) AS size_bytes
  FROM pg_catalog.pg_class AS c
 WHERE c.oid = :'oid'::oid;
