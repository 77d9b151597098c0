-- add_objects.sql: add objects to a load, unless another load has objects that must not be shared
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v unshared='{t}' -v oids='{1247}' \
--     -v uris='{/a.csv}' -v seen='{}' -v numbers='{1}' -v schemas='{public}' -v tables='{t}' -v versions='{v}' \
--     -v sizes='{1}' -v ctimes='{1}' -v units='{bytes}' -f add_objects.sql
\set given_objects `cat parts/given_objects.sql`
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set taken `cat parts/taken.sql`
INSERT INTO :"ledger".objects
       (load, origin, number, target_oid, target_schema, target_table, uri, version, size_bytes, ctime_ns, unit)
SELECT :'load'::uuid,
       :origin,
       w.*
  FROM (SELECT WHERE NOT EXISTS (:taken)) AS f,
       :given_objects AS w;
