-- newest.sql: this role's newest load, the load that began after it and was removed, and whether this login began it
-- returns (load_id, failed_later, is_own_login); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v resumable=true -f newest.sql
--
-- With `resumable`, it is the newest of those that can be resumed by the ledger alone, if there is one that no process is
-- running now.
\set has_sources `cat parts/has_sources.sql`
\set load_is_locked `cat parts/load_is_locked.sql`
SELECT l.id::text AS load_id,
       (
           SELECT f.failed_later
             FROM ONLY :"ledger".loads AS f
            WHERE f.owner = CURRENT_USER
              AND f.failed_event > e.began
            ORDER BY f.failed_event DESC
            LIMIT 1
       ) AS failed_later,
       coalesce(l.login = SESSION_USER, false) AS is_own_login
  FROM ONLY :"ledger".loads AS l
  CROSS JOIN LATERAL (
           SELECT coalesce(l.begin_event, l.event) AS began
       ) AS e
 WHERE l.owner = CURRENT_USER
   AND l.tables <> '{}'
   AND (
           NOT :'resumable'
        OR (
               l.state = 'running'
               AND l.job IS NOT NULL
               AND :has_sources
           )
       )
 ORDER BY :'resumable' AND :load_is_locked,
          e.began DESC
 LIMIT 1;
