-- drop_joined.sql: delete the ranges that join_ranges.sql has joined into another row, and return their size
-- returns (size_bytes); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v loads='{00000000-0000-0000-0000-000000000001}' -f drop_joined.sql
WITH gone AS (
    DELETE FROM ONLY :"ledger".ranges AS r
     WHERE r.load = ANY (:'loads')
       AND EXISTS (
               SELECT
                 FROM ONLY :"ledger".ranges AS b
                WHERE b.load = r.load
                  AND b.object = r.object
                  AND b.start < r.start
           )
    RETURNING pg_catalog.pg_column_size(r.*) AS size_bytes
)
SELECT coalesce(sum(g.size_bytes), 0)::bigint AS size_bytes FROM gone AS g;
