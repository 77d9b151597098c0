-- sequences.sql: the sequences that end before the range of bigint does, as those of serial columns do
-- returns (counters); needs USAGE or SELECT on a sequence, others are left out; PostgreSQL 14+
-- psql -f sequences.sql
--
-- A sequence ends at its own maximum, or at the maximum of the column that owns it if that is lower; one that descends
-- ends at the minimum. last_value and last_possible count the numbers from the first one on, so that they grow either
-- way. Of a sequence from 1 on, they are the last value and the last possible value themselves. Reading a sequence's
-- last value takes a lock that conflicts with TRUNCATE RESTART IDENTITY. So the query waits at most 0.1 s for a lock,
-- and reads at most 500 sequences.
WITH patience AS MATERIALIZED (
    SELECT pg_catalog.set_config('lock_timeout', '100ms', true)
),
ending AS MATERIALIZED (
    SELECT q.seqrelid,
           n.nspname AS schemaname,
           c.relname AS sequencename,
           CASE WHEN q.seqincrement > 0 THEN q.seqmin ELSE q.seqmax END::numeric AS first,
           CASE WHEN q.seqincrement > 0
                THEN LEAST(q.seqmax, l.most)
                ELSE GREATEST(q.seqmin, -l.most - 1)
           END AS last
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
     CROSS JOIN LATERAL (
               -- A domain has the output function of its base type.
               SELECT CASE t.typoutput
                          WHEN 'pg_catalog.int2out'::regproc THEN 32767
                          WHEN 'pg_catalog.int4out'::regproc THEN 2147483647
                      END AS most
           ) AS l
     WHERE (c.relpersistence = 'p' OR (c.relpersistence = 'u' AND NOT pg_catalog.pg_is_in_recovery()))
       AND NOT q.seqcycle
       AND CASE c.relkind WHEN 'S' THEN pg_catalog.has_sequence_privilege(c.oid, 'SELECT,USAGE') END
       AND (
               CASE WHEN q.seqincrement > 0
                    THEN q.seqmax < 9223372036854775807
                    ELSE q.seqmin > -9223372036854775808
               END
            OR l.most IS NOT NULL
           )
     LIMIT 500
)
SELECT pg_catalog.jsonb_build_object(
           'schemaname', e.schemaname,
           'sequencename', e.sequencename,
           'last_value', pg_catalog.abs(pg_catalog.pg_sequence_last_value(e.seqrelid) - e.first) + 1,
           'last_possible', pg_catalog.abs(e.last - e.first) + 1
       ) AS counters
  FROM ending AS e;
