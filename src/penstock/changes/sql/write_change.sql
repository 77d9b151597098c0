-- write_change.sql: record a change at a table, unless a change of the same object is recorded
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v target=0 -v schema=public -v table=t -v kind=index -v relation=1 -v name=i \
--     -v record='{}' -v load=00000000-0000-0000-0000-000000000001 -f write_change.sql
\set origin `cat ../../ledger/sql/parts/origin.sql`
INSERT INTO :"ledger".changes
       (origin, target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load)
SELECT :origin,
       :'target',
       coalesce(max(c.number), 0) + 1,
       :'schema',
       :'table',
       :'kind',
       :'relation',
       :'name',
       :'record'::jsonb,
       :'load'
  FROM ONLY :"ledger".changes AS c
 WHERE c.target_oid = :'target'
ON CONFLICT (origin, target_oid, kind, relation_oid, name) DO NOTHING;
