-- vacuums.sql: running VACUUM commands, with the table, its age, and how many of its rows were updated or deleted
-- returns (counters); needs pg_read_all_stats for commands of other roles; PostgreSQL 14+
-- psql -f vacuums.sql
SELECT pg_catalog.to_jsonb(v)
       || pg_catalog.jsonb_build_object(
              'relname', c.relname,
              'xid_age', pg_catalog.age(c.relfrozenxid),
              'mxid_age', pg_catalog.mxid_age(c.relminmxid),
              'n_tup_changed', pg_catalog.pg_stat_get_tuples_updated(c.oid)
                               + pg_catalog.pg_stat_get_tuples_deleted(c.oid)
          ) AS counters
  FROM pg_catalog.pg_stat_progress_vacuum AS v
  LEFT JOIN pg_catalog.pg_class AS c ON c.oid = v.relid AND v.datname = pg_catalog.current_database();
