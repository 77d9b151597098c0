-- subtransaction.sql: the number of the open transaction, or of its innermost savepoint, as the xmin of a row written there
-- returns (transaction); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -v number=1 -f subtransaction.sql
--
-- No function returns the number of a savepoint. The upper 32 bits are those of the transaction, which is older.
WITH written AS (
    UPDATE ONLY :"ledger".targets
       SET staged = staged
     WHERE load = :'load'
       AND number = :'number'
    RETURNING xmin::text::int8 AS low
)
SELECT (t.number + ((w.low - t.number) & 4294967295))::text AS transaction
  FROM written AS w
 CROSS JOIN LATERAL (SELECT pg_catalog.pg_current_xact_id()::text::int8 AS number) AS t;
