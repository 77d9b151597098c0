-- reject_forms.sql: how the records of each object with rejected records are read
-- returns (number, uri, target_schema, target_table, form); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f reject_forms.sql
SELECT DISTINCT ON (r.object) r.object AS number, o.uri, o.target_schema, o.target_table, r.form::text AS form
  FROM ONLY :"ledger".ranges AS r
  JOIN ONLY :"ledger".objects AS o ON o.load = r.load AND o.number = r.object
 WHERE r.load = :'load'
   AND r.form IS NOT NULL
   -- Such a row names records that were corrected, and not how they are read.
   AND r.form -> 'corrected' IS NULL
 ORDER BY r.object, r.start;
