-- changed.sql: the loads whose changes at some tables, their partitions or their parents are not restored yet
-- returns (target_oid, load_id); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v oids='{1247}' -f changed.sql
\set change_oid `cat parts/change_oid.sql`
\set origin `cat parts/origin.sql`
SELECT DISTINCT c.target_oid, c.load::text AS load_id
  FROM ONLY :"ledger".changes AS c
 WHERE :change_oid = ANY (:'oids')
    OR (c.origin = :origin AND c.relation_oid = ANY (:'oids') AND c.kind <> 'reference')
    OR EXISTS (
           SELECT
             FROM pg_catalog.pg_partition_ancestors(:change_oid) AS a
            WHERE a.relid = ANY (:'oids')
       );
