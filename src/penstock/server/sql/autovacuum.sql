-- autovacuum.sql: the tables that given backends write to where autovacuum is at work, or has been lately
-- returns autovacuum.Visit; needs no privilege; PostgreSQL 14+
-- psql -v pids='{1,2}' -v oids='{1259}' -v since_s=10 -f autovacuum.sql
--
-- Others' progress and the kind of their backends are hidden from an ordinary role. Locks are not, and of the backends
-- that have a database only autovacuum's workers have no user. Past the age of vacuum_rel's freeze limits autovacuum
-- comes whatever the table's parameter says, and does not give way.
WITH held AS MATERIALIZED (
    SELECT l.pid,
           l.relation,
           l.mode
      FROM pg_catalog.pg_locks AS l
     WHERE l.locktype = 'relation'
       AND l.granted
       AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock')
       AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
),
written AS (
    SELECT t.oid AS target_oid,
           c.oid AS relation_oid,
           n.nspname::text AS schema,
           c.relname::text AS relation,
           c.reltoastrelid,
           c.reloptions
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      JOIN unnest(:'oids'::oid[]) AS t (oid)
        ON t.oid = c.oid
        OR c.relispartition AND t.oid IN (SELECT a.relid FROM pg_catalog.pg_partition_ancestors(c.oid) AS a)
     WHERE c.relkind = 'r'
       AND c.oid IN (SELECT h.relation FROM held AS h WHERE h.mode = 'RowExclusiveLock' AND h.pid = ANY (:'pids'::int[]))
),
looked_at AS (
    SELECT w.*,
           EXISTS (
               SELECT
                 FROM held AS h
                 JOIN pg_catalog.pg_stat_activity AS a ON a.pid = h.pid
                WHERE h.relation = v.oid
                  AND h.mode = 'ShareUpdateExclusiveLock'
                  AND a.usesysid IS NULL
           ) AS is_at_work,
           COALESCE(
               greatest(
                   pg_catalog.pg_stat_get_last_autovacuum_time(v.oid),
                   pg_catalog.pg_stat_get_last_autoanalyze_time(v.oid)
               ) >= pg_catalog.clock_timestamp() - :'since_s'::float8 * interval '1 s',
               false
           ) AS has_been,
           pg_catalog.age(v.relfrozenxid) > least(
               pg_catalog.current_setting('autovacuum_freeze_max_age')::int,
               o.freeze_max_age
           )
           OR v.relminmxid <> '0'
           AND pg_catalog.mxid_age(v.relminmxid) > least(
               pg_catalog.current_setting('autovacuum_multixact_freeze_max_age')::int,
               o.multixact_freeze_max_age
           ) AS prevents_wraparound
      FROM written AS w
      JOIN pg_catalog.pg_class AS v ON v.oid IN (w.relation_oid, w.reltoastrelid)
     CROSS JOIN LATERAL (
           SELECT max(p.option_value::int) FILTER (WHERE p.option_name = 'autovacuum_freeze_max_age') AS freeze_max_age,
                  max(p.option_value::int) FILTER (
                      WHERE p.option_name = 'autovacuum_multixact_freeze_max_age'
                  ) AS multixact_freeze_max_age
             FROM pg_catalog.pg_options_to_table(COALESCE(v.reloptions, w.reloptions)) AS p
            WHERE p.option_name IN ('autovacuum_freeze_max_age', 'autovacuum_multixact_freeze_max_age')
     ) AS o
)
SELECT l.target_oid,
       l.relation_oid,
       l.schema,
       l.relation,
       bool_or(l.is_at_work) AS is_at_work,
       bool_or(l.prevents_wraparound) AS prevents_wraparound
  FROM looked_at AS l
 GROUP BY 1, 2, 3, 4
HAVING bool_or(l.is_at_work OR l.has_been)
 ORDER BY l.relation_oid;
