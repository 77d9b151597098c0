-- checks_of_columns.sql: the CHECK constraints of a table on some of its columns
-- returns core.sql.NameRow; needs no privilege; PostgreSQL 14+
-- psql -v table=public.t -v columns='{id}' -f checks_of_columns.sql
SELECT c.conname AS name
  FROM pg_catalog.pg_constraint AS c
 WHERE c.conrelid = pg_catalog.to_regclass(:'table')
   AND c.contype = 'c'
   AND EXISTS (
           SELECT
             FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = c.conrelid
              AND a.attnum = ANY (c.conkey)
              AND a.attname = ANY (:'columns')
       )
 ORDER BY c.conname;
