-- space_place.sql: where a table and the WAL are stored, its size and indexes; oid 0 is a table to be created
-- returns core.catalogue.catalog.TableStorage; needs no privilege, pg_read_all_settings for paths; PostgreSQL 14+
-- psql -v oid=1259 -f space_place.sql
--
-- Sizes come from the page counts of the last VACUUM or ANALYZE. pg_table_size is not used, because it would wait if
-- another session has locked the table.
WITH server AS (
    SELECT CASE
               WHEN pg_catalog.pg_has_role(CURRENT_USER, 'pg_read_all_settings', 'USAGE')
                   THEN pg_catalog.current_setting('data_directory')
           END AS directory,
           pg_catalog.current_setting('block_size')::int8 AS page_bytes
),
kept AS (
    SELECT (
               SELECT 'slot ' || pg_catalog.min(r.slot_name)
                 FROM pg_catalog.pg_replication_slots AS r
                WHERE NOT r.active
                  AND r.restart_lsn IS NOT NULL
           ) AS slot,
           (
               SELECT 'the failing archiver'
                 FROM pg_catalog.pg_stat_archiver AS a
                WHERE pg_catalog.current_setting('archive_mode') <> 'off'
                  AND a.last_failed_time > COALESCE(a.last_archived_time, '-infinity')
           ) AS archiver,
           pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_wal_size')) AS usual_bytes,
           pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_slot_wal_keep_size')) AS slot_bytes
),
indexes AS (
    SELECT pg_catalog.count(*)::int AS number,
           COALESCE(pg_catalog.sum(x.relpages), 0) AS pages
      FROM pg_catalog.pg_index AS i
      JOIN pg_catalog.pg_class AS x
        ON x.oid = i.indexrelid
     WHERE i.indrelid = :'oid'::oid
       AND i.indislive
)
SELECT COALESCE(
           NULLIF(
               pg_catalog.pg_tablespace_location(COALESCE(NULLIF(c.reltablespace, 0), d.dattablespace)),
               ''
           ),
           s.directory
       ) AS path,
       s.directory || '/pg_wal' AS wal_path,
       (COALESCE(c.relpages + o.relpages, c.relpages, 0) + i.pages)::int8 * s.page_bytes AS stored_bytes,
       i.number AS index_count,
       CASE
           WHEN k.archiver IS NULL AND (k.slot IS NULL OR k.slot_bytes >= 0)
           THEN GREATEST(k.usual_bytes, CASE WHEN k.slot IS NOT NULL THEN k.slot_bytes END)
       END AS wal_limit_bytes,
       COALESCE(k.archiver, k.slot) AS wal_kept_for
  FROM server AS s
 CROSS JOIN indexes AS i
 CROSS JOIN kept AS k
  JOIN pg_catalog.pg_database AS d
    ON d.datname = pg_catalog.current_database()
  LEFT JOIN pg_catalog.pg_class AS c
    ON c.oid = :'oid'::oid
  LEFT JOIN pg_catalog.pg_class AS o
    ON o.oid = c.reltoastrelid;
