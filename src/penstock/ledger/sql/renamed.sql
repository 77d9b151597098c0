-- renamed.sql: objects that were loaded into the same table under another name, with the same version and size
-- returns (number, uri, load_id); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v numbers='{1}' -v oids='{1247}' -v uris='{/a.csv}' -v versions='{v}' -v sizes='{1}' \
--     -v identity=00112233445566778899aabbccddeeff -f renamed.sql
--
-- Complete loads have loaded them, or the unfinished one with this identity.
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
SELECT DISTINCT ON (w.number) w.number, o.uri, o.load::text AS load_id
  FROM ROWS FROM (
           pg_catalog.unnest(:'numbers'::int[]), pg_catalog.unnest(:'oids'::oid[]),
           pg_catalog.unnest(:'uris'::text[]), pg_catalog.unnest(:'versions'::text[]),
           pg_catalog.unnest(:'sizes'::bigint[])
       ) AS w (number, oid, uri, version, size_bytes)
  JOIN ONLY :"ledger".objects AS o
    ON o.version = w.version
   AND o.size_bytes = w.size_bytes
   AND :object_oid IS NOT DISTINCT FROM w.oid
   AND o.uri <> w.uri
  JOIN ONLY :"ledger".loads AS l
    ON l.id = o.load
 WHERE w.size_bytes > 0
   AND (
           l.state = 'complete'
        OR (
               l.identity = :'identity'
           AND EXISTS (SELECT FROM ONLY :"ledger".ranges AS r WHERE r.load = o.load AND r.object = o.number)
           )
       )
 ORDER BY w.number, l.state = 'complete', l.changed_at DESC;
