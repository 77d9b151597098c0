-- finish.sql: record that a load is complete, if every record of it is committed
-- returns (totals); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v epoch=1 -f finish.sql
--
-- `rows` counts the rows that the load has stored in its tables: staged records count only if they were inserted or
-- updated.
\set is_complete `cat parts/is_complete.sql`
\set missing `cat parts/missing.sql`
\set totals `cat parts/totals.sql`
UPDATE ONLY :"ledger".loads AS l
   SET state = 'complete',
       changed_at = pg_catalog.clock_timestamp(),
       begin_event = coalesce(begin_event, event),
       event = DEFAULT,
       rows = (
           SELECT coalesce((SELECT sum(r.rows) FROM ONLY :"ledger".ranges AS r WHERE r.load = l.id), 0)
                  + coalesce(
                        (
                            SELECT sum(t.inserted + t.updated - t.staged)
                              FROM ONLY :"ledger".targets AS t
                             WHERE t.load = l.id
                        ),
                        0
                    )
       )
 WHERE l.id = :'load'
   AND l.epoch = :'epoch'
   AND NOT EXISTS (:missing)
RETURNING :totals AS totals;
