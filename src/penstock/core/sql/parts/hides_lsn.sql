-- hides_lsn.sql: whether the functions for WAL positions fail: on readers of Amazon Aurora, and on its writer unless
-- wal_level is logical ("WAL control functions cannot be executed when wal_level < logical")
(
    (
        pg_catalog.to_regproc('pg_catalog.aurora_version') IS NOT NULL
        OR coalesce(pg_catalog.current_setting('rds.extensions', true) LIKE '%aurora\_stat\_utils%', false)
    )
    AND (pg_catalog.pg_is_in_recovery() OR pg_catalog.current_setting('wal_level') <> 'logical')
)
