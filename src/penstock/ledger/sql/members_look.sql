-- members_look.sql: the state of a load as one of its members sees it
-- returns ledger.values.MembersState; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v member=1 -v unseen='{}' -v load=00000000-0000-0000-0000-000000000001 \
--     -f members_look.sql
\set claim_is_free `cat parts/claim_is_free.sql`
\set member_is_locked `cat parts/member_is_locked.sql`
SELECT l.state = 'complete' AS is_complete,
       s.claimed,
       s.held,
       s.free,
       (SELECT pg_catalog.count(*)
          FROM ONLY :"ledger".members AS m
         WHERE m.load = l.id AND m.ended_at IS NULL AND m.number <> :'member' AND :member_is_locked) AS others,
       EXISTS (
           SELECT FROM ONLY :"ledger".members AS m WHERE m.load = l.id AND m.number = :'member' AND m.ended_at IS NULL
       ) AS is_member,
       l.session_limit,
       ARRAY(
           SELECT m.number
             FROM ONLY :"ledger".members AS m
            WHERE m.load = l.id AND m.ended_at IS NULL AND m.number <> :'member' AND NOT :member_is_locked
       ) AS dying
  FROM ONLY :"ledger".loads AS l
  CROSS JOIN LATERAL (
           SELECT pg_catalog.count(*) AS claimed,
                  pg_catalog.count(*) FILTER (WHERE NOT f.is_free) AS held,
                  pg_catalog.count(*) FILTER (WHERE f.is_free AND c.object <> ALL (:'unseen'::integer[])) AS free
             FROM ONLY :"ledger".claims AS c
            CROSS JOIN LATERAL (SELECT :claim_is_free AS is_free) AS f
            WHERE c.load = l.id
       ) AS s
 WHERE l.id = :'load';
