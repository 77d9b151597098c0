-- publications.sql: the publications FOR ALL TABLES, which include a new table at once
-- returns core.sql.NameRow; needs no privilege; PostgreSQL 14+
-- psql -f publications.sql
SELECT p.pubname::text AS name
  FROM pg_catalog.pg_publication AS p
 WHERE p.puballtables
 ORDER BY p.pubname;
