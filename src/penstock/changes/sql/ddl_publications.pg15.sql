-- ddl_publications.pg15.sql: the publications that a table is a member of, by name, by schema or as one of all tables
-- returns changes.tables.definition.PublicationRow; needs no privilege; PostgreSQL 15+
-- psql -v oid=1259 -f ddl_publications.pg15.sql
--
-- Column lists and row filters exist since PostgreSQL 15. Since PostgreSQL 19, a publication FOR ALL TABLES can exclude
-- tables, together with their partitions. Columns of later versions are read through JSON.
SELECT p.pubname::text AS name,
       CASE
           WHEN r.oid IS NOT NULL
           THEN pg_catalog.format(
                    'ALTER PUBLICATION %I ADD TABLE ONLY %s%s%s',
                    p.pubname,
                    r.prrelid::regclass,
                    (
                        SELECT ' (' ||
                               pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) || ')'
                          FROM pg_catalog.pg_attribute AS a
                         WHERE a.attrelid = r.prrelid
                           AND a.attnum = ANY (r.prattrs::int2[])
                    ),
                    ' WHERE (' || pg_catalog.pg_get_expr(r.prqual, r.prrelid) || ')'
                )
       END AS statement
  FROM pg_catalog.pg_publication AS p
  LEFT JOIN pg_catalog.pg_publication_rel AS r ON r.prpubid = p.oid AND r.prrelid = :'oid'::oid
 WHERE (
           r.oid IS NOT NULL
           OR p.puballtables
           OR EXISTS (
                  SELECT
                    FROM pg_catalog.pg_publication_namespace AS s
                    JOIN pg_catalog.pg_class AS c ON c.relnamespace = s.pnnspid
                   WHERE s.pnpubid = p.oid
                     AND c.oid = :'oid'::oid
              )
       )
   AND NOT EXISTS (
           SELECT
             FROM pg_catalog.pg_publication_rel AS x
            WHERE x.prpubid = p.oid
              AND (
                      x.prrelid = :'oid'::oid
                      OR x.prrelid IN (
                             SELECT a.relid FROM pg_catalog.pg_partition_ancestors(:'oid'::oid::regclass) AS a
                         )
                  )
              AND pg_catalog.to_jsonb(x) ->> 'prexcept' = 'true'
       )
 ORDER BY p.pubname;
