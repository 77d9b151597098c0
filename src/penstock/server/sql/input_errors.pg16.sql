-- input_errors.pg16.sql: which of the given values their columns' types refuse, and why; the first of each record
-- returns input_errors.InputErrorRow; needs no privilege; PostgreSQL 16+
-- psql -v table=public.t -v values='[{"r":0,"c":"id","t":"x"}]' -f input_errors.pg16.sql
--
-- The values are one text of JSON, since arrays of many elements are slow to make. Run with the user's search_path, as
-- COPY reads them: every operator has its schema.
SELECT DISTINCT ON (w.record)
       w.record,
       w.column_name AS "column",
       i.message,
       i.detail,
       i.sql_error_code AS sqlstate
  FROM ROWS FROM (
           pg_catalog.json_to_recordset(:'values'::pg_catalog.json)
               AS (r pg_catalog.int4, c pg_catalog.text, t pg_catalog.text)
       ) WITH ORDINALITY AS w (record, column_name, value, place)
  JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid OPERATOR(pg_catalog.=) :'table'::pg_catalog.regclass::pg_catalog.oid
   AND a.attname::pg_catalog.text OPERATOR(pg_catalog.=) w.column_name
 CROSS JOIN LATERAL pg_catalog.pg_input_error_info(w.value, pg_catalog.format_type(a.atttypid, a.atttypmod)) AS i
 WHERE i.message IS NOT NULL
 ORDER BY w.record, w.place;
