-- changes.sql: the recorded changes of one table, or of all tables
-- returns (target_oid, number, target_schema, target_table, kind, relation_oid, name, record, owner, load_id,
--    made_at, is_copied, failure); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v target=0 -f changes.sql
--
-- Key 'failure' of a record says why the change could not be restored. Only the record's owner can write it.
\set origin `cat ../../ledger/sql/parts/origin.sql`
SELECT c.target_oid::bigint,
       c.number,
       c.target_schema,
       c.target_table,
       c.kind,
       c.relation_oid::bigint,
       c.name,
       CASE WHEN pg_catalog.jsonb_typeof(c.record) = 'object' THEN c.record - 'failure' ELSE '{}' END AS record,
       c.owner,
       c.load::text AS load_id,
       c.made_at,
       c.origin <> :origin AS is_copied,
       c.record ->> 'failure' AS failure
  FROM ONLY :"ledger".changes AS c
 WHERE :'target'::bigint IS NULL
    OR c.target_oid = :'target'::bigint::oid
 ORDER BY c.target_oid, c.number;
