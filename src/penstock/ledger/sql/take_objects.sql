-- take_objects.sql: claim free objects, the largest first, up to a number of objects and up to a total size
-- returns (object); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v member=1 -v load=00000000-0000-0000-0000-000000000001 -v unseen='{}' -v count=1 \
--     -v bytes=1 -f take_objects.sql
\set claim_is_free `cat parts/claim_is_free.sql`
UPDATE ONLY :"ledger".claims AS c
   SET member = :'member'
  FROM (
           SELECT w.load, w.object
             FROM (
                      SELECT f.load,
                             f.object,
                             pg_catalog.sum(f.size_bytes) OVER (ORDER BY f.size_bytes DESC, f.object) - f.size_bytes
                                 AS bytes_before
                        FROM (
                                 SELECT c.load, c.object, coalesce(o.size_bytes, 0) AS size_bytes
                                   FROM ONLY :"ledger".claims AS c
                                   JOIN ONLY :"ledger".objects AS o ON o.load = c.load AND o.number = c.object
                                  WHERE c.load = :'load'
                                    AND c.object <> ALL (:'unseen'::integer[])
                                    AND :claim_is_free
                                  ORDER BY o.size_bytes DESC NULLS FIRST, c.object
                                  LIMIT :'count'
                                    FOR UPDATE OF c SKIP LOCKED
                             ) AS f
                  ) AS w
            WHERE w.bytes_before < :'bytes'
       ) AS t
 WHERE c.load = t.load
   AND c.object = t.object
RETURNING c.object;
