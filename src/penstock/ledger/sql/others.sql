-- others.sql: the objects of a load, except those with the given numbers
-- returns ledger.committed.OtherObject; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v numbers='{1}' -f others.sql
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
SELECT o.number,
       o.uri,
       :object_oid AS target_oid
  FROM ONLY :"ledger".objects AS o
 WHERE o.load = :'load'
   AND o.number <> ALL (:'numbers')
 ORDER BY o.number;
