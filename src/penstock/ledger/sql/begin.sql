-- begin.sql: record a new load, unless another load has objects that must not be shared
-- returns (is_begun); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000002 -v identity=ffeeddccbbaa99887766554433221100 \
--     -v lock=00112233445566778899aabbccddeeff -v client=host -v names='{public.t}' -v created='{public.t}' \
--     -v meaning='{}' -v job='{}' -v unshared='{t}' -v oids='{1247}' -v uris='{/a.csv}' -v seen='{}' -f begin.sql
\set object_oid `cat parts/object_oid.sql`
\set origin `cat parts/origin.sql`
\set taken `cat parts/taken.sql`
INSERT INTO :"ledger".loads (id, identity, lock_key, client, tables, created, meaning, job)
SELECT :'load'::uuid,
       :'identity',
       :'lock',
       :'client',
       :'names'::text[],
       :'created'::text[],
       :'meaning'::jsonb,
       :'job'::jsonb
 WHERE NOT EXISTS (:taken)
RETURNING true AS is_begun;
