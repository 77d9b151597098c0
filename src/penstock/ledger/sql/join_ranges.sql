-- join_ranges.sql: join the ranges of each object of some loads in the first of its rows
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v loads='{00000000-0000-0000-0000-000000000001}' -f join_ranges.sql
UPDATE ONLY :"ledger".ranges AS r
   SET ranges = s.ranges,
       has_start = s.has_start,
       has_end = s.has_end,
       records = s.records,
       rows = s.rows,
       suppressed = s.suppressed,
       rejected = s.rejected,
       checksum = -1,
       form = NULL,
       member = NULL,
       committed_at = s.committed_at,
       transaction = NULL
  FROM (
           SELECT a.load,
                  a.object,
                  min(a.start) AS start,
                  coalesce(
                      (SELECT pg_catalog.range_agg(p.part)
                         FROM ONLY :"ledger".ranges AS b, pg_catalog.unnest(b.ranges) AS p (part)
                        WHERE b.load = a.load AND b.object = a.object),
                      '{}'
                  ) AS ranges,
                  bool_or(a.has_start) AS has_start,
                  bool_or(a.has_end) AS has_end,
                  sum(a.records) AS records,
                  sum(a.rows) AS rows,
                  sum(a.suppressed) AS suppressed,
                  sum(a.rejected) AS rejected,
                  max(a.committed_at) AS committed_at
             FROM ONLY :"ledger".ranges AS a
            WHERE a.load = ANY (:'loads')
            GROUP BY a.load, a.object
           HAVING count(*) > 1
       ) AS s
 WHERE r.load = s.load
   AND r.object = s.object
   AND r.start = s.start;
