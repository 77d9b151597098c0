-- all_objects.sql: all objects, with what is committed of each
SELECT o.load,
       o.number,
       pg_catalog.concat_ws('.', nullif(o.target_schema, ''), o.target_table) AS "table",
       o.uri,
       o.version,
       o.size_bytes,
       o.ctime_ns,
       s.is_complete,
       EXISTS (
           SELECT
             FROM ONLY :"ledger".targets AS t
            WHERE t.load = o.load
              AND t.target_oid = o.target_oid
              AND t.kind = 'staging'
       ) AS is_staged,
       s.rows,
       s.suppressed,
       s.rejected,
       s.records,
       s.repeated,
       CASE WHEN o.unit = 'rows' AND s.is_complete THEN o.size_bytes ELSE s.bytes_committed END AS bytes_committed,
       s.committed_at
  FROM ONLY :"ledger".objects AS o
  CROSS JOIN LATERAL (
           SELECT :is_complete AS is_complete,
                  coalesce(pg_catalog.sum(r.rows) FILTER (WHERE p.number IS NULL OR p.number = 1), 0)::int8 AS rows,
                  coalesce(pg_catalog.sum(r.suppressed) FILTER (WHERE p.number IS NULL OR p.number = 1), 0)::int8
                      AS suppressed,
                  coalesce(pg_catalog.sum(r.rejected) FILTER (WHERE p.number IS NULL OR p.number = 1), 0)::int8
                      AS rejected,
                  coalesce(pg_catalog.sum(r.records) FILTER (WHERE p.number IS NULL OR p.number = 1), 0)::int8
                      AS records,
                  coalesce(
                      pg_catalog.sum(upper(p.part) - lower(p.part)) - (
                          SELECT pg_catalog.sum(upper(j.part) - lower(j.part))
                            FROM pg_catalog.unnest(pg_catalog.range_agg(p.part)) AS j (part)
                      ),
                      0
                  )::int8 AS repeated,
                  coalesce(
                      pg_catalog.sum(
                          -- An object that the server imported has one range, [0,1).
                          CASE o.unit WHEN 'object' THEN o.size_bytes WHEN 'rows' THEN 0
                              ELSE upper(p.part) - lower(p.part) END
                      ),
                      0
                  )::int8 AS bytes_committed,
                  pg_catalog.max(r.committed_at) AS committed_at
             FROM ONLY :"ledger".ranges AS r
             LEFT JOIN LATERAL pg_catalog.unnest(r.ranges) WITH ORDINALITY AS p (part, number) ON true
            WHERE r.load = o.load
              AND r.object = o.number
       ) AS s
