-- table_names.sql: tables whose name, as SQL spells it, begins with a text; of schema public also without the schema
-- returns core.sql.NameRow; needs no privilege; PostgreSQL 14+
-- psql -v beginning=t -v without=penstock -f table_names.sql
SELECT s.name
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 CROSS JOIN LATERAL (
       VALUES (pg_catalog.format('%I.%I', n.nspname, c.relname)),
              (CASE WHEN n.nspname = 'public' THEN pg_catalog.quote_ident(c.relname) END)
       ) AS s (name)
 WHERE c.relkind IN ('r', 'p')
   AND n.nspname !~ '^pg_'
   AND n.nspname NOT IN ('information_schema', :'without')
   AND pg_catalog.starts_with(s.name, :'beginning')
 ORDER BY s.name
 LIMIT 200;
