-- sequences.sql: the sequences that end within the range of integer, as those of serial columns do
-- returns (counters); needs USAGE or SELECT on a sequence, others are left out; PostgreSQL 14+
-- psql -f sequences.sql
--
-- A sequence ends at its own maximum, or at the maximum of the column that owns it if that is lower. Reading a
-- sequence's last value takes a lock that conflicts with TRUNCATE RESTART IDENTITY. So the query waits at most 0.1 s
-- for a lock, and reads at most 500 sequences.
WITH patience AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', '100ms', true)
),
ending AS MATERIALIZED (
    SELECT q.seqrelid,
           n.nspname AS schemaname,
           c.relname AS sequencename,
           LEAST(
               q.seqmax,
               -- A domain has the output function of its base type.
               CASE t.typoutput
                   WHEN 'pg_catalog.int2out'::regproc THEN 32767
                   WHEN 'pg_catalog.int4out'::regproc THEN 2147483647
               END
           ) AS last_possible
      FROM patience
     CROSS JOIN pg_catalog.pg_sequence AS q
      JOIN pg_catalog.pg_class AS c ON c.oid = q.seqrelid
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      LEFT JOIN pg_catalog.pg_depend AS d
        ON d.classid = 'pg_catalog.pg_class'::regclass
       AND d.objid = c.oid
       AND d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjsubid > 0
       AND d.deptype IN ('a', 'i')
      LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
      LEFT JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
     WHERE c.relpersistence = 'p'
       AND q.seqincrement > 0
       AND NOT q.seqcycle
       AND CASE c.relkind WHEN 'S' THEN pg_catalog.has_sequence_privilege(c.oid, 'SELECT,USAGE') END
       AND (q.seqmax <= 2147483647 OR t.typoutput IN ('pg_catalog.int2out'::regproc, 'pg_catalog.int4out'::regproc))
     LIMIT 500
)
SELECT pg_catalog.jsonb_build_object(
           'schemaname', e.schemaname,
           'sequencename', e.sequencename,
           'last_value', pg_catalog.pg_sequence_last_value(e.seqrelid),
           'last_possible', e.last_possible
       ) AS counters
  FROM ending AS e;
