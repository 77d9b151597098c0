-- ddl_publications.pg15.sql: the publications that a table is a member of, by name, by schema or as one of all tables
-- returns ddl.definition.PublicationRow; needs no privilege; PostgreSQL 15+
-- psql -v oid=1259 -f ddl_publications.pg15.sql
--
-- Columns and row filter came with PostgreSQL 15.
SELECT p.pubname::text AS name,
       r.oid IS NOT NULL AS is_explicit,
       CASE
           WHEN r.prattrs IS NOT NULL
           THEN ARRAY(
                    SELECT a.attname::text
                      FROM pg_catalog.pg_attribute AS a
                     WHERE a.attrelid = r.prrelid
                       AND a.attnum = ANY (r.prattrs::int2[])
                     ORDER BY a.attnum
                )
       END AS columns,
       pg_catalog.pg_get_expr(r.prqual, r.prrelid) AS filter
  FROM pg_catalog.pg_publication AS p
  LEFT JOIN pg_catalog.pg_publication_rel AS r ON r.prpubid = p.oid AND r.prrelid = :'oid'::oid
 WHERE r.oid IS NOT NULL
    OR p.puballtables
    OR EXISTS (
           SELECT
             FROM pg_catalog.pg_publication_namespace AS s
             JOIN pg_catalog.pg_class AS c ON c.relnamespace = s.pnnspid
            WHERE s.pnpubid = p.oid
              AND c.oid = :'oid'::oid
       )
 ORDER BY p.pubname;
