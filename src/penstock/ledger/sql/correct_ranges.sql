-- correct_ranges.sql: add rows to table ranges, so that rejected records count as stored, or staged ones as rejected
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v objects='{1}' -v rows='{1}' \
--     -v suppressed='{0}' -v forms='{null}' -f correct_ranges.sql
--
-- The rows are stored under savepoints, which have transactions of their own.
INSERT INTO :"ledger".ranges
    (load, object, start, ranges, has_start, has_end, records, rows, suppressed, rejected, checksum, form, transaction)
SELECT :'load', w.object,
       least(0, (SELECT min(r.start) FROM ONLY :"ledger".ranges AS r
                  WHERE r.load = :'load' AND r.object = w.object)) - 1,
       '{}', false, false, 0, w.rows, w.suppressed, -(w.rows + w.suppressed), 0, w.form::jsonb, NULL
  FROM ROWS FROM (
           unnest(:'objects'::integer[]), unnest(:'rows'::bigint[]), unnest(:'suppressed'::bigint[]),
           unnest(:'forms'::text[])
       ) AS w (object, rows, suppressed, form);
