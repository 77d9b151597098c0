-- adopt_targets.sql: record the oids of a load's targets, and of the tables created for them, in this database
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f adopt_targets.sql
\set landing_oid `cat parts/landing_oid.sql`
\set origin `cat parts/origin.sql`
\set target_oid `cat parts/target_oid.sql`
UPDATE ONLY :"ledger".targets AS t
   SET target_oid = coalesce(:target_oid, 0),
       landing_oid = :landing_oid,
       origin = :origin
 WHERE load = :'load';
