-- tablespaces.sql: the tablespaces and their directories
-- returns core.values.inspection.Tablespace; needs no privilege; PostgreSQL 14+
-- psql -f tablespaces.sql
SELECT t.spcname::text AS name,
       pg_catalog.pg_tablespace_location(t.oid) AS location
  FROM pg_catalog.pg_tablespace AS t
 ORDER BY t.spcname;
