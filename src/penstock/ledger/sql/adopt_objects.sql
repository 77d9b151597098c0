-- adopt_objects.sql: record the oids of the tables of a load's objects in this database
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f adopt_objects.sql
--
-- The rows that are stored have other transactions here, or their numbers mean others.
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
WITH forgotten AS (
    UPDATE ONLY :"ledger".ranges
       SET transaction = NULL
     WHERE load = :'load'
)
UPDATE ONLY :"ledger".objects AS o
   SET target_oid = coalesce(:object_oid, 0),
       origin = :origin
 WHERE load = :'load';
