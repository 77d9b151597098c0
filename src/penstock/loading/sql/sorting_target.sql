-- sorting_target.sql: whether INSERT stores rows in a relation as COPY does, one row after another
-- returns loading.rejects.sorting.SortingTarget; needs no privilege; PostgreSQL 14+
-- psql -v table=public.t -f sorting_target.sql
--
-- Rules rewrite an INSERT but not a COPY. A foreign table may be sent several rows at a time.
SELECT c.oid::int8 AS oid,
       c.relkind IN ('r', 'p')
       AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_rewrite AS w
            WHERE w.ev_class = c.oid
              AND w.ev_type = '3'
       )
       AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_partition_tree(c.oid::regclass) AS p
             JOIN pg_catalog.pg_class AS f ON f.oid = p.relid
            WHERE f.relkind = 'f'
       ) AS is_plain
  FROM pg_catalog.pg_class AS c
 WHERE c.oid = :'table'::regclass;
