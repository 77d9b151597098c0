-- xmin_holders.sql: the twenty oldest sessions, slots and prepared transactions that keep dead rows from removal
-- returns (counters); needs pg_read_all_stats for sessions of other roles; PostgreSQL 14+
-- psql -f xmin_holders.sql
--
-- The oldest transaction id that is still running is the xmin of every snapshot that is taken meanwhile, and of the
-- feedback of standbys. Only the transaction that owns this id holds it. So that id counts for its owner alone, and for
-- a slot that nobody moves. The owner is known even if the role may not see it: the id is the xmin of this snapshot.
--
-- A lost slot shows its xmin, and holds nothing. A VACUUM command is no holder, because others ignore it. A parallel worker has the snapshot of its
-- leader. A slot with only a catalog_xmin keeps only rows of the system's catalogs. A standby that sends feedback appears
-- as its walsender's session. So does the first copy of a table for a subscriber, which is connected to a database.
WITH running AS MATERIALIZED (
    SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::xid AS oldest
),
holders AS (
    SELECT CASE WHEN a.backend_type LIKE 'logical replication%' THEN 'apply'
                WHEN a.backend_type <> 'walsender' OR a.backend_type IS NULL THEN 'backend'
                WHEN a.datname IS NULL THEN 'standby'
                ELSE 'copy'
           END AS kind,
           a.application_name AS name,
           a.pid,
           a.usename::text AS user_name,
           a.datname::text AS datname,
           a.state,
           GREATEST(
               pg_catalog.age(a.backend_xid),
               CASE WHEN a.backend_xmin <> r.oldest THEN pg_catalog.age(a.backend_xmin) END
           ) AS xid_age,
           pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - a.xact_start) AS age_s,
           a.xact_start,
           false AS is_catalog,
           a.backend_xid IS NOT NULL AS is_owner,
           a.wait_event_type,
           a.query ~* '\m(create|reindex)\M.*\mconcurrently\M' AND a.state = 'active' AS is_build
      FROM pg_catalog.pg_stat_activity AS a
     CROSS JOIN running AS r
     WHERE a.pid <> pg_catalog.pg_backend_pid()
       AND (a.backend_type IN ('autovacuum worker', 'parallel worker')) IS NOT TRUE
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum AS v WHERE v.pid = a.pid)
    UNION ALL
    SELECT 'slot',
           s.slot_name::text,
           s.active_pid,
           NULL,
           s.database::text,
           CASE WHEN s.active THEN 'active' ELSE 'inactive' END,
           GREATEST(
               CASE WHEN s.xmin <> r.oldest OR NOT s.active THEN pg_catalog.age(s.xmin) END,
               CASE WHEN s.catalog_xmin <> r.oldest OR NOT s.active THEN pg_catalog.age(s.catalog_xmin) END
           ),
           NULL,
           NULL,
           s.xmin IS NULL,
           false,
           NULL,
           false
      FROM pg_catalog.pg_replication_slots AS s
     CROSS JOIN running AS r
     WHERE s.wal_status IS DISTINCT FROM 'lost'
    UNION ALL
    SELECT 'prepared',
           p.gid,
           NULL,
           p.owner::text,
           p.database::text,
           NULL,
           pg_catalog.age(p.transaction),
           pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - p.prepared),
           NULL,
           false,
           true,
           NULL,
           false
      FROM pg_catalog.pg_prepared_xacts AS p
)
SELECT pg_catalog.to_jsonb(h) AS counters
  FROM holders AS h
 WHERE h.xid_age IS NOT NULL
 ORDER BY h.xid_age DESC,
          h.is_owner DESC,
          h.kind = 'backend',
          h.age_s DESC NULLS LAST
 LIMIT 20;
