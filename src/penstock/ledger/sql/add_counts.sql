-- add_counts.sql: add what a retry has stored to the counts of a target
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v staged=0 -v inserted=0 -v updated=0 -v duplicates=0 -v existing=0 -v suppressed=0 \
--     -v load=00000000-0000-0000-0000-000000000001 -v number=1 -f add_counts.sql
UPDATE ONLY :"ledger".targets
   SET staged = staged + :'staged',
       inserted = inserted + :'inserted',
       updated = updated + :'updated',
       duplicates = duplicates + :'duplicates',
       existing = existing + :'existing',
       suppressed = suppressed + :'suppressed'
 WHERE load = :'load'
   AND number = :'number';
