-- taken.sql: the objects that must not be shared, and that a load which is not in `seen` has
SELECT
  FROM ROWS FROM (
           unnest(:'unshared'::boolean[]), unnest(:'oids'::oid[]), unnest(:'uris'::text[])
       ) AS w (is_unshared, oid, uri)
  JOIN ONLY :"ledger".objects AS o
    ON o.uri = w.uri
   AND :object_oid IS NOT DISTINCT FROM w.oid
 WHERE w.is_unshared
   AND o.load <> ALL (:'seen'::uuid[])
