-- insert_rejects.sql: insert rejected records
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v rejects='[]' -f insert_rejects.sql
INSERT INTO :"ledger".rejects (load, object, start, line, "column", sqlstate, message, detail, raw)
SELECT :'load', w.object, w.start, w.line, w."column", w.sqlstate, w.message, w.detail,
       pg_catalog.decode(w.raw, 'hex')
  FROM pg_catalog.json_to_recordset(:'rejects'::json)
       AS w (object integer, start bigint, line bigint, "column" text, sqlstate text, message text,
             detail text, raw text);
