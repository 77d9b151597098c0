-- loaded.sql: those of the given tables that a complete load has filled
-- returns (schema_name, table_name); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v schemas='{public}' -v tables='{t}' -f loaded.sql
SELECT w.schema_name, w.table_name
  FROM ROWS FROM (
           pg_catalog.unnest(:'schemas'::name[]), pg_catalog.unnest(:'tables'::name[])
       ) AS w (schema_name, table_name)
 WHERE EXISTS (
           SELECT
             FROM ONLY :"ledger".objects AS o
             JOIN ONLY :"ledger".loads AS l
               ON l.id = o.load
            WHERE o.target_schema = w.schema_name
              AND o.target_table = w.table_name
              AND l.state = 'complete'
       );
