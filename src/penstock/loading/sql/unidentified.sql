-- unidentified.sql: the tables of a tree of partitions that a publication keeps from being updated or deleted from
-- returns loading.land.refusals.UnidentifiedRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f unidentified.sql
--
-- Source: CheckCmdReplicaIdentity in src/backend/executor/execReplication.c. Since PostgreSQL 19, a publication can
-- publish only sequences, and a publication of all tables can exclude tables with their partitions.
WITH leaf AS (
    SELECT c.oid,
           c.relname::text AS name
      FROM pg_catalog.pg_class AS c
     WHERE c.oid IN (
               SELECT :'oid'::oid
               UNION
               SELECT p.relid::oid
                 FROM pg_catalog.pg_partition_tree(:'oid'::oid) AS p
           )
       AND c.relkind = 'r'
       AND c.relpersistence = 'p'
       AND c.relreplident <> 'f'
       AND NOT EXISTS (
               SELECT
                 FROM pg_catalog.pg_index AS i
                WHERE i.indrelid = c.oid
                  AND i.indisvalid
                  AND i.indimmediate
                  AND CASE c.relreplident
                          WHEN 'd' THEN i.indisprimary
                          WHEN 'i' THEN i.indisreplident
                          ELSE false
                      END
           )
),
line AS (
    SELECT leaf.oid AS leaf_oid,
           leaf.oid
      FROM leaf
    UNION
    SELECT leaf.oid,
           a.relid::oid
      FROM leaf
     CROSS JOIN LATERAL pg_catalog.pg_partition_ancestors(leaf.oid) AS a
),
published AS (
    SELECT line.leaf_oid,
           q.pubupdate,
           q.pubdelete
      FROM pg_catalog.pg_publication AS q
     CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(q.pubname::text) AS t
      JOIN line ON line.oid = t.relid
)
SELECT leaf.name,
       pg_catalog.bool_or(p.pubupdate) AS publishes_updates,
       pg_catalog.bool_or(p.pubdelete) AS publishes_deletes
  FROM leaf
  JOIN published AS p ON p.leaf_oid = leaf.oid
 GROUP BY leaf.oid,
          leaf.name
 ORDER BY leaf.name;
