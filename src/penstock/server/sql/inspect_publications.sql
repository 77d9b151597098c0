-- inspect_publications.sql: the publications of this database
-- returns model.server.inspection.Publication; needs no privilege; PostgreSQL 14+
-- psql -f inspect_publications.sql
SELECT p.pubname::text AS name,
       p.puballtables AS is_all_tables
  FROM pg_catalog.pg_publication AS p
 ORDER BY p.pubname;
