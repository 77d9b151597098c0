-- progress.sql: the progress of this role's index builds, within the current phase of each
-- returns changes.tables.builds.BuildRow; needs no privilege; PostgreSQL 14+
-- psql -f progress.sql
--
-- PostgreSQL reports no progress during a sort.
SELECT p.pid,
       p.phase,
       CASE WHEN p.phase LIKE '%loading tuples%' THEN p.tuples_done ELSE p.blocks_done END AS done,
       CASE
           WHEN p.phase LIKE '%loading tuples%' THEN p.tuples_total
           WHEN p.phase NOT LIKE '%sorting%' THEN p.blocks_total
           ELSE 0
       END AS total
  FROM pg_catalog.pg_stat_progress_create_index AS p
 WHERE p.phase IS NOT NULL;
