-- members.sql: the processes that have loaded rows of a load
-- returns ledger.values.MemberRecord; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f members.sql
\set member_is_locked `cat parts/member_is_locked.sql`
SELECT m.number,
       m.client,
       m.ended_at IS NULL AND l.state = 'running' AND :member_is_locked AS is_live,
       coalesce(s.objects, 0) AS objects,
       (
           SELECT pg_catalog.count(*) FROM ONLY :"ledger".claims AS c WHERE c.load = m.load AND c.member = m.number
       ) AS claimed,
       coalesce(s.rows, 0)::int8 AS rows,
       m.began_at,
       greatest(m.began_at, s.committed_at) AS seen_at,
       extract(epoch FROM greatest(m.began_at, s.committed_at) - m.began_at)::float8 AS seconds
  FROM ONLY :"ledger".members AS m
  JOIN ONLY :"ledger".loads AS l ON l.id = m.load
  LEFT JOIN (
           SELECT r.member,
                  pg_catalog.count(DISTINCT r.object) AS objects,
                  pg_catalog.sum(r.rows) AS rows,
                  pg_catalog.max(r.committed_at) AS committed_at
             FROM ONLY :"ledger".ranges AS r
            WHERE r.load = :'load'
            GROUP BY r.member
       ) AS s
    ON s.member = m.number
 WHERE m.load = :'load'
 ORDER BY m.number;
