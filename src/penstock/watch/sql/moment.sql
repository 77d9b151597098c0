-- moment.sql: the server's clock, and how many autovacuum workers are running (null if hidden)
-- returns watch.activity.MomentRow; needs no privilege, pg_read_all_stats for the workers; PostgreSQL 14+
-- psql -f moment.sql
SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) AS clock_s,
       CASE
           WHEN pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
           THEN (
                    SELECT pg_catalog.count(*)::int
                      FROM pg_catalog.pg_stat_activity AS a
                     WHERE a.backend_type = 'autovacuum worker'
                )
       END AS autovacuum_workers;
