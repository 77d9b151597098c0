-- prewarm_blocks.sql: reads a range of the blocks of a table or index, from the first to the last
-- returns (blocks); needs the extension pg_prewarm, and SELECT on the table; PostgreSQL 14+
-- psql -v extension=other -v oid=1259 -v first=0 -v last=1 -f prewarm_blocks.sql
SELECT :"extension".pg_prewarm(:'oid'::oid::regclass, 'read', 'main', :'first'::bigint, :'last'::bigint) AS blocks;
