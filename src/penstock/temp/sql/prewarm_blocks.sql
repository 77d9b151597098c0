-- prewarm_blocks.sql: reads a range of the blocks of a table or index, from the first to the last
-- returns one row (blocks); needs the extension pg_prewarm, and SELECT on the table; PostgreSQL 14+
-- psql -v extension=public -v oid=16385 -v first=0 -v last=8191 -f prewarm_blocks.sql
SELECT :"extension".pg_prewarm(:'oid'::oid::regclass, 'read', 'main', :'first'::bigint, :'last'::bigint) AS blocks;
