-- ddl_all_tables.sql: the publications FOR ALL TABLES of this database
-- returns ddl.dependencies.AllTablesRow; needs no privilege; PostgreSQL 14+
-- psql -f ddl_all_tables.sql
SELECT p.pubname::text AS name
  FROM pg_catalog.pg_publication AS p
 WHERE p.puballtables
 ORDER BY p.pubname;
