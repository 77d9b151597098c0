-- running.sql: the load with an identity that has begun and not ended
-- returns (load_id, next_number, is_copied); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v identity=00112233445566778899aabbccddeeff -v lock=00112233445566778899aabbccddeeff \
--     -f running.sql
--
-- The identity contains oids, so a load that was recorded in another database is found by the key of its lock.
\set origin `cat parts/origin.sql`
SELECT l.id::text AS load_id,
       (SELECT coalesce(max(o.number) + 1, 0) FROM ONLY :"ledger".objects AS o WHERE o.load = l.id) AS next_number,
       s.is_copied
  FROM ONLY :"ledger".loads AS l
  CROSS JOIN LATERAL (
           SELECT EXISTS (SELECT FROM ONLY :"ledger".objects AS o WHERE o.load = l.id AND o.origin <> :origin)
       ) AS s (is_copied)
 WHERE l.state = 'running'
   AND (l.identity = :'identity' OR (l.lock_key = :'lock' AND s.is_copied))
 ORDER BY l.identity <> :'identity', l.began_at DESC
 LIMIT 1;
