-- delete_rejects.sql: delete rejected records that are stored in their table
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v rejects='[]' -v load=00000000-0000-0000-0000-000000000001 -f delete_rejects.sql
DELETE FROM ONLY :"ledger".rejects AS r
 USING pg_catalog.json_to_recordset(:'rejects'::json) AS w (object integer, start bigint)
 WHERE r.load = :'load'
   AND r.object = w.object
   AND r.start = w.start;
