-- note_truncated.sql: record that this transaction has truncated a target
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v number=1 -v oid=1247 -v schema=public \
--     -v table=t -f note_truncated.sql
\set origin `cat parts/origin.sql`
WITH truncation AS (
    UPDATE ONLY :"ledger".loads
       SET begin_event = coalesce(begin_event, event),
           event = DEFAULT
     WHERE id = :'load'
    RETURNING event
)
INSERT INTO :"ledger".targets
       (load, number, origin, target_oid, target_schema, target_table, truncated_at, truncation_event)
SELECT :'load', :'number', :origin, :'oid', :'schema', :'table', pg_catalog.clock_timestamp(), t.event
  FROM truncation AS t
ON CONFLICT (load, number) DO UPDATE
SET truncated_at = EXCLUDED.truncated_at,
    truncation_event = EXCLUDED.truncation_event;
