-- missing.sql: the objects of load l that are not completely committed
SELECT o.number
  FROM ONLY :"ledger".objects AS o
  LEFT JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
  LEFT JOIN LATERAL pg_catalog.unnest(r.ranges) AS p (part) ON true
 WHERE o.load = l.id
 GROUP BY o.number
HAVING NOT :is_complete
