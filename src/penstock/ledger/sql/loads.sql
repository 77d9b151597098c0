-- loads.sql: the loads of a ledger, or some of them
-- returns (load_id, state, is_active, owner, client, tables, objects, complete_objects, rows, rejected,
--    bytes_committed, began_at, changed_at, seconds, job, unreadable); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v since=2026-01-01 -v into='{public.t}' \
--     -v limit=10 -f loads.sql
\set all_objects `cat parts/all_objects.sql`
\set has_sources `cat parts/has_sources.sql`
\set is_complete `cat parts/is_complete.sql`
\set load_is_locked `cat parts/load_is_locked.sql`
\set names `cat parts/names.sql`
SELECT l.id::text AS load_id,
       l.state,
       l.state = 'running' AND :load_is_locked AS is_active,
       l.owner::text,
       l.client,
       ARRAY(:names) AS tables,
       coalesce(s.objects, 0) AS objects,
       coalesce(s.complete_objects, 0) AS complete_objects,
       (
           coalesce(s.rows, 0)
           + (
               SELECT coalesce(pg_catalog.sum(t.inserted + t.updated), 0)
                 FROM ONLY :"ledger".targets AS t
                WHERE t.load = l.id
           )
       )::int8 AS rows,
       coalesce(s.rejected, 0)::int8 AS rejected,
       coalesce(s.bytes_committed, 0)::int8 AS bytes_committed,
       l.began_at,
       greatest(l.changed_at, s.committed_at) AS changed_at,
       extract(
           epoch FROM CASE l.state WHEN 'complete' THEN l.changed_at ELSE greatest(l.changed_at, s.committed_at) END
           - l.began_at
       )::float8 AS seconds,
       -- A load is resumed by its job if the ledger has its sources.
       CASE WHEN :has_sources THEN l.job::text END AS job,
       coalesce(l.meaning -> 'unreadable', '[]')::text AS unreadable
  FROM (
           SELECT *
             FROM ONLY :"ledger".loads AS l
            WHERE l.tables <> '{}'
              AND (:'load'::uuid IS NULL OR l.id = :'load'::uuid)
              AND (:'since'::timestamptz IS NULL OR l.began_at >= :'since'::timestamptz)
              AND (
                      :'into'::text[] IS NULL
                   OR EXISTS (
                          SELECT
                            FROM (:names) AS t
                           WHERE t.name = ANY (:'into'::text[])
                              OR pg_catalog.substr(t.name, pg_catalog.strpos(t.name, '.') + 1) = ANY (:'into'::text[])
                      )
                  )
            ORDER BY l.began_at DESC, l.id DESC
            LIMIT :'limit'::bigint
       ) AS l
  LEFT JOIN (
           SELECT o.load,
                  pg_catalog.count(*) AS objects,
                  pg_catalog.count(*) FILTER (WHERE o.is_complete) AS complete_objects,
                  pg_catalog.sum(o.rows) FILTER (WHERE NOT o.is_staged) AS rows,
                  pg_catalog.sum(o.rejected) AS rejected,
                  pg_catalog.sum(o.bytes_committed) AS bytes_committed,
                  pg_catalog.max(o.committed_at) AS committed_at
             FROM (:all_objects) AS o
            GROUP BY o.load
       ) AS s
    ON s.load = l.id
 ORDER BY l.began_at, l.id;
