-- publications.sql: the publications of this database
-- returns core.values.inspection.Publication; needs no privilege; PostgreSQL 14+
-- psql -f publications.sql
SELECT p.pubname::text AS name,
       p.puballtables AS is_all_tables
  FROM pg_catalog.pg_publication AS p
 ORDER BY p.pubname;
