-- space_place.sql: where a table and the WAL are on disk, and how large they are; oid 0 is a table still to be made
-- returns model.space.TablePlace; needs no privilege, pg_read_all_settings for paths; PostgreSQL 14+
-- psql -v oid=1259 -f space_place.sql
WITH server AS (
    SELECT CASE
               WHEN pg_catalog.pg_has_role(CURRENT_USER, 'pg_read_all_settings', 'USAGE')
                   THEN pg_catalog.current_setting('data_directory')
           END AS directory
)
SELECT COALESCE(
           NULLIF(
               pg_catalog.pg_tablespace_location(COALESCE(NULLIF(c.reltablespace, 0), d.dattablespace)),
               ''
           ),
           s.directory
       ) AS path,
       s.directory || '/pg_wal' AS wal_path,
       COALESCE(pg_catalog.pg_table_size(c.oid), 0) AS table_bytes,
       COALESCE(pg_catalog.pg_indexes_size(c.oid), 0) AS index_bytes,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_wal_size')) AS wal_limit_bytes
  FROM server AS s
  JOIN pg_catalog.pg_database AS d
    ON d.datname = pg_catalog.current_database()
  LEFT JOIN pg_catalog.pg_class AS c
    ON c.oid = :'oid'::oid;
