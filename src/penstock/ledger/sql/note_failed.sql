-- note_failed.sql: record in this role's newest load that a later one has failed before its first commit
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000002 -f note_failed.sql
--
-- The row of a load that is being written is skipped, since nothing waits for a note.
UPDATE ONLY :"ledger".loads AS l
   SET failed_later = :'load',
       login = CASE WHEN login = SESSION_USER THEN login END
 WHERE l.id = (
           SELECT n.id
             FROM ONLY :"ledger".loads AS n
            WHERE n.owner = CURRENT_USER
            ORDER BY coalesce(n.begin_event, n.event) DESC
            LIMIT 1
              FOR NO KEY UPDATE SKIP LOCKED
       );
