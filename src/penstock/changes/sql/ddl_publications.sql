-- ddl_publications.sql: the publications that a table is a member of, by name or as one of all tables
-- returns changes.tables.definition.PublicationRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_publications.sql
SELECT p.pubname::text AS name,
       CASE
           WHEN r.oid IS NOT NULL
           THEN pg_catalog.format('ALTER PUBLICATION %I ADD TABLE ONLY %s', p.pubname, r.prrelid::regclass)
       END AS statement
  FROM pg_catalog.pg_publication AS p
  LEFT JOIN pg_catalog.pg_publication_rel AS r ON r.prpubid = p.oid AND r.prrelid = :'oid'::oid
 WHERE r.oid IS NOT NULL
    OR p.puballtables
 ORDER BY p.pubname;
