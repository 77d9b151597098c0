-- names.sql: the names of the tables of load l
-- Loads of earlier versions have recorded a table that they created without a schema under its bare name, and its
-- objects with the schema.
SELECT coalesce(
           (
               SELECT pg_catalog.concat_ws('.', o.target_schema, o.target_table)
                 FROM ONLY :"ledger".objects AS o
                WHERE o.load = l.id
                  AND o.target_table = n.name
                  AND o.target_schema <> ''
                  AND pg_catalog.concat_ws('.', o.target_schema, o.target_table) <> ALL (l.tables)
                LIMIT 1
           ),
           n.name
       ) AS name
  FROM pg_catalog.unnest(l.tables) WITH ORDINALITY AS n (name, number)
 ORDER BY n.number
