-- begin_objects.sql: record the objects of a load, if the load was recorded
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v numbers='{1}' -v oids='{1247}' \
--     -v schemas='{public}' -v tables='{t}' -v uris='{/a.csv}' -v versions='{v}' -v sizes='{1}' -v ctimes='{1}' \
--     -v units='{bytes}' -f begin_objects.sql
\set given_objects `cat parts/given_objects.sql`
\set origin `cat parts/origin.sql`
INSERT INTO :"ledger".objects
       (load, origin, number, target_oid, target_schema, target_table, uri, version, size_bytes, ctime_ns, unit)
SELECT l.id,
       :origin,
       w.*
  FROM (SELECT l.id FROM ONLY :"ledger".loads AS l WHERE l.id = :'load'::uuid) AS l,
       :given_objects AS w;
