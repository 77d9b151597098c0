-- drop_members.sql: delete the members of some loads, and return their size
-- returns (size_bytes); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v loads='{00000000-0000-0000-0000-000000000001}' -f drop_members.sql
--
-- After that, the ledger does not show how much each process has loaded.
WITH gone AS (
    DELETE FROM ONLY :"ledger".members AS m
     WHERE m.load = ANY (:'loads')
    RETURNING pg_catalog.pg_column_size(m.*) AS size_bytes
)
SELECT coalesce(sum(g.size_bytes), 0)::bigint AS size_bytes FROM gone AS g;
