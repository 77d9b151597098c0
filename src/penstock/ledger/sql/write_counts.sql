-- write_counts.sql: record the counts of a target, and the present oid of its table
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v staged=0 -v inserted=0 -v updated=0 -v duplicates=0 -v existing=0 -v suppressed=0 \
--     -v target_oid=1247 -v load=00000000-0000-0000-0000-000000000001 -v number=1 -f write_counts.sql
WITH landed AS (
    UPDATE ONLY :"ledger".targets AS t
       SET staged = :'staged',
           inserted = :'inserted',
           updated = :'updated',
           duplicates = :'duplicates',
           existing = :'existing',
           suppressed = :'suppressed',
           target_oid = :'target_oid'
      FROM ONLY :"ledger".targets AS b
     WHERE t.load = :'load'
       AND t.number = :'number'
       AND b.load = t.load
       AND b.number = t.number
    RETURNING b.target_oid AS old_oid
)
UPDATE ONLY :"ledger".objects AS o
   SET target_oid = :'target_oid'
  FROM landed AS n
 WHERE o.load = :'load'
   AND o.target_oid = n.old_oid
   AND n.old_oid <> :'target_oid';
