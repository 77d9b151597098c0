-- table_totals.sql: what the ledger records about each loaded table
-- returns ledger.values.TableTotals; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -f table_totals.sql
--
-- A row of `ranges` with a negative start subtracts from `rejected` the records that were loaded later.
\set all_objects `cat parts/all_objects.sql`
\set is_complete `cat parts/is_complete.sql`
\set load_is_locked `cat parts/load_is_locked.sql`
\set names `cat parts/names.sql`
SELECT s."table",
       extract(epoch FROM pg_catalog.max(l.changed_at) FILTER (WHERE l.state = 'complete'))::float8
           AS last_success_s,
       coalesce(pg_catalog.sum(s.rows), 0)::int8 AS rows,
       coalesce(pg_catalog.sum(s.rejected), 0)::int8 AS rejected,
       pg_catalog.count(*) FILTER (WHERE l.state = 'running') AS unfinished,
       pg_catalog.count(*) FILTER (WHERE l.state = 'running' AND :load_is_locked) AS active,
       extract(epoch FROM pg_catalog.min(l.began_at) FILTER (WHERE l.state = 'running'))::float8
           AS oldest_unfinished_s
  FROM ONLY :"ledger".loads AS l
  JOIN (
           SELECT p.load, p."table", pg_catalog.sum(p.rows) AS rows, pg_catalog.sum(p.rejected) AS rejected
             FROM (
                      SELECT l.id AS load, t.name AS "table", 0 AS rows, 0 AS rejected
                        FROM ONLY :"ledger".loads AS l
                       CROSS JOIN LATERAL (:names) AS t
                       UNION ALL
                      SELECT o.load, o."table", CASE WHEN NOT o.is_staged THEN o.rows END, o.rejected
                        FROM (:all_objects) AS o
                       UNION ALL
                      SELECT t.load,
                             pg_catalog.concat_ws('.', nullif(t.target_schema, ''), t.target_table),
                             t.inserted + t.updated,
                             0
                        FROM ONLY :"ledger".targets AS t
                       WHERE t.kind = 'staging'
                  ) AS p
            GROUP BY p.load, p."table"
       ) AS s
    ON s.load = l.id
 GROUP BY s."table"
 ORDER BY s."table";
