-- xmin_holders.sql: the twenty oldest sessions, slots and prepared transactions that keep dead rows from removal
-- returns (counters); needs pg_read_all_stats for sessions of other roles; PostgreSQL 14+
-- psql -f xmin_holders.sql
--
-- A VACUUM command is no holder, because other VACUUM commands ignore it. A slot with only a catalog_xmin keeps only
-- rows of the system's catalogs. A standby that sends feedback appears as its walsender's session.
WITH holders AS (
    SELECT CASE WHEN a.backend_type = 'walsender' THEN 'standby' ELSE 'backend' END AS kind,
           a.application_name AS name,
           a.pid,
           a.usename::text AS user_name,
           a.datname::text AS datname,
           a.state,
           GREATEST(pg_catalog.age(a.backend_xid), pg_catalog.age(a.backend_xmin)) AS xid_age,
           pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start) AS age_s,
           false AS is_catalog
      FROM pg_catalog.pg_stat_activity AS a
     WHERE a.pid <> pg_catalog.pg_backend_pid()
       AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
       AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum AS v WHERE v.pid = a.pid)
    UNION ALL
    SELECT 'slot',
           s.slot_name::text,
           s.active_pid,
           NULL,
           s.database::text,
           CASE WHEN s.active THEN 'active' ELSE 'inactive' END,
           GREATEST(pg_catalog.age(s.xmin), pg_catalog.age(s.catalog_xmin)),
           NULL,
           s.xmin IS NULL
      FROM pg_catalog.pg_replication_slots AS s
     WHERE s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL
    UNION ALL
    SELECT 'prepared',
           p.gid,
           NULL,
           p.owner::text,
           p.database::text,
           NULL,
           pg_catalog.age(p.transaction),
           pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - p.prepared),
           false
      FROM pg_catalog.pg_prepared_xacts AS p
)
SELECT pg_catalog.to_jsonb(h) AS counters
  FROM holders AS h
 ORDER BY h.xid_age DESC
 LIMIT 20;
