-- write_landing.sql: record the table that is created for a target, in place of an earlier one
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v number=1 -v oid=1247 -v schema=public \
--     -v table=t -v kind=staging -v landing_schema=penstock -v landing_table=staging_1 -v landing_oid=1247 \
--     -v definition='' -f write_landing.sql
\set origin `cat parts/origin.sql`
INSERT INTO :"ledger".targets
       (load, number, origin, target_oid, target_schema, target_table, kind, landing_schema, landing_table,
        landing_oid, definition)
VALUES (:'load', :'number', :origin, :'oid', :'schema', :'table', :'kind',
        :'landing_schema', :'landing_table', :'landing_oid', :'definition')
ON CONFLICT (load, number) DO UPDATE
SET kind = EXCLUDED.kind,
    landing_schema = EXCLUDED.landing_schema,
    landing_table = EXCLUDED.landing_table,
    landing_oid = EXCLUDED.landing_oid,
    definition = EXCLUDED.definition;
