-- write_failure.sql: add to a record why the change cannot be restored
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v target=0 -v number=1 -v why=locked -f write_failure.sql
--
-- The record is deleted and inserted again, since no role may update records.
WITH gone AS (
    DELETE FROM ONLY :"ledger".changes
     WHERE target_oid = :'target'
       AND number = :'number'
    RETURNING *
)
INSERT INTO :"ledger".changes
       (origin, target_oid, number, target_schema, target_table, kind, relation_oid, name, record, load, made_at)
SELECT g.origin,
       g.target_oid,
       g.number,
       g.target_schema,
       g.target_table,
       g.kind,
       g.relation_oid,
       g.name,
       g.record || pg_catalog.jsonb_build_object('failure', :'why'::text),
       g.load,
       g.made_at
  FROM gone AS g;
