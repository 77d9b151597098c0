-- keep_truncations.sql: record, of a load that is about to be removed, that it truncated tables, in a new row of loads
-- returns (kept); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f keep_truncations.sql
--
-- `kept` is the id of the new row. There is none if the load has truncated nothing. The row has no table, no job and no
-- object. loads.sql and newest.sql skip a row without a table, so that no command finds it as a load.
INSERT INTO :"ledger".loads
       (id, identity, lock_key, state, owner, client, tables, meaning, rows, began_at, changed_at, login, event,
        begin_event, failed_later, failed_event)
SELECT pg_catalog.gen_random_uuid(), l.identity, l.lock_key, 'complete', l.owner, l.client, '{}',
       pg_catalog.jsonb_build_object('removed', l.id), 0, l.began_at, l.changed_at,
       CASE WHEN l.login = SESSION_USER THEN l.login END, l.event, l.begin_event, l.failed_later, l.failed_event
  FROM ONLY :"ledger".loads AS l
 WHERE l.id = :'load'
   AND EXISTS (SELECT FROM ONLY :"ledger".targets AS t WHERE t.load = l.id AND t.truncated_at IS NOT NULL)
RETURNING id::text AS kept;
