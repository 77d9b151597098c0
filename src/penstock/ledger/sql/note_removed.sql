-- note_removed.sql: record in a load of this role that a later one was removed
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000002 -v event=2 -f note_removed.sql
--
-- The row of a load that is being written is skipped, since nothing waits for a note. So is that of another login, whose
-- name this one could not keep.
UPDATE ONLY :"ledger".loads AS l
   SET failed_later = :'load',
       failed_event = :'event'
 WHERE l.id = (
           SELECT n.id
             FROM ONLY :"ledger".loads AS n
            WHERE n.owner = CURRENT_USER
              AND (n.login IS NULL OR n.login = SESSION_USER)
            ORDER BY n.event DESC
            LIMIT 1
              FOR NO KEY UPDATE SKIP LOCKED
       )
   AND coalesce(l.failed_event, 0) < :'event';
