-- landings_of_objects.sql: the given objects of a load whose target has a table that was created for it
-- returns (target, object); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v numbers='{1}' -f landings_of_objects.sql
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
SELECT t.number AS target,
       o.number AS object
  FROM ONLY :"ledger".objects AS o
  JOIN ONLY :"ledger".targets AS t ON t.load = o.load AND :target_oid = :object_oid
 WHERE o.load = :'load'
   AND o.number = ANY (:'numbers')
   AND t.kind IS NOT NULL;
