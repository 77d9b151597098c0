-- renew_rejects.sql: update the reasons and the bytes of records that were refused again
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v rejects='[]' -v load=00000000-0000-0000-0000-000000000001 -f renew_rejects.sql
UPDATE ONLY :"ledger".rejects AS r
   SET "column" = w."column", sqlstate = w.sqlstate, message = w.message, detail = w.detail,
       raw = pg_catalog.decode(w.raw, 'hex')
  FROM pg_catalog.json_to_recordset(:'rejects'::json)
       AS w (object integer, start bigint, "column" text, sqlstate text, message text, detail text,
             raw text)
 WHERE r.load = :'load'
   AND r.object = w.object
   AND r.start = w.start;
