-- coverage.sql: what is committed of each object of a load, or of some of its objects
-- returns (number, ranges, has_start, has_end, rows); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v numbers='{1}' -f coverage.sql
SELECT r.object AS number,
       pg_catalog.range_agg(part)::text AS ranges,
       bool_or(r.has_start AND is_leading) AS has_start,
       bool_or(r.has_end AND is_leading) AS has_end,
       sum(r.rows) FILTER (WHERE is_leading) AS rows
  FROM ONLY :"ledger".ranges AS r
  CROSS JOIN LATERAL (
           SELECT NULL::int8range AS part, true AS is_leading
           UNION ALL
           SELECT p.part, false FROM pg_catalog.unnest(r.ranges) AS p (part)
       ) AS parts
 WHERE r.load = :'load'
   AND (:'numbers'::integer[] IS NULL OR r.object = ANY (:'numbers'))
 GROUP BY r.object;
