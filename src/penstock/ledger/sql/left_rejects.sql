-- left_rejects.sql: how many rejected records of some objects are neither loaded nor discarded, by load
-- returns ledger.values.LeftRejects; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v uris='{/a.csv}' -v oids='{1247}' -v but_load=00000000-0000-0000-0000-000000000002 \
--     -f left_rejects.sql
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
SELECT o.load::text AS load_id, count(*) AS count
  FROM ONLY :"ledger".objects AS o
  JOIN ONLY :"ledger".rejects AS r ON r.load = o.load AND r.object = o.number
 WHERE o.uri = ANY (:'uris')
   AND :object_oid = ANY (:'oids'::oid[])
   AND o.load IS DISTINCT FROM :'but_load'::uuid
 GROUP BY o.load
 ORDER BY o.load;
