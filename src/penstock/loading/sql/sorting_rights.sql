-- sorting_rights.sql: whether the role may have records sorted in a temporary table
-- returns (has_rights); needs no privilege; PostgreSQL 14+
-- psql -f sorting_rights.sql
SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
       AND EXISTS (
               SELECT
                 FROM pg_catalog.pg_language AS l
                WHERE l.lanname = 'plpgsql'
                  AND pg_catalog.has_language_privilege(l.oid, 'USAGE')
           ) AS has_rights;
