-- read_blocks.sql: reads a range of a table's blocks, and counts their rows
-- returns (rows); needs SELECT on the table; PostgreSQL 14+
-- psql -v schema=public -v table=t -v from='(0,0)' -v to='(8192,0)' -f read_blocks.sql
SELECT pg_catalog.count(*) AS rows
  FROM :"schema".:"table"
 WHERE ctid >= :'from'::tid
   AND ctid < :'to'::tid;
