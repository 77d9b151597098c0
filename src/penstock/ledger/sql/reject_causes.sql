-- reject_causes.sql: the causes of a load's rejected records, the most frequent first
-- returns ledger.rejects.RejectCause; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f reject_causes.sql
SELECT c.*
  FROM (
           SELECT DISTINCT ON (s.sqlstate, s."column", s.shape)
                  s.sqlstate,
                  s."column",
                  s.shape AS message,
                  count(*) OVER (PARTITION BY s.sqlstate, s."column", s.shape) AS count,
                  o.uri,
                  s.line,
                  s.message AS example,
                  s.detail,
                  s.raw
             FROM (
                      SELECT r.*,
                             CASE
                                 WHEN r.sqlstate LIKE '22%'
                                 THEN pg_catalog.regexp_replace(r.message, '"[^"]*"', '"..."', 'g')
                                 ELSE r.message
                             END AS shape
                        FROM ONLY :"ledger".rejects AS r
                       WHERE r.load = :'load'
                  ) AS s
             JOIN ONLY :"ledger".objects AS o ON o.load = s.load AND o.number = s.object
            ORDER BY s.sqlstate, s."column", s.shape, s.object, s.start
       ) AS c
 ORDER BY c.count DESC, c.uri, c.line;
