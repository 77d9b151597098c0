-- ledger_publications.sql: the publications FOR ALL TABLES, which include a new table at once
-- returns sql.queries.NameRow; needs no privilege; PostgreSQL 14+
-- psql -f ledger_publications.sql
SELECT p.pubname::text AS name
  FROM pg_catalog.pg_publication AS p
 WHERE p.puballtables
 ORDER BY p.pubname;
