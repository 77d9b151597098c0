-- filled.sql: the tables to which a complete load has added rows
-- returns (oid); needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v load=00000000-0000-0000-0000-000000000001 -f filled.sql
WITH stored AS (
    SELECT o.target_oid AS oid,
           r.rows
      FROM ONLY :"ledger".objects AS o
      JOIN ONLY :"ledger".ranges AS r ON r.load = o.load AND r.object = o.number
     WHERE o.load = :'load'
       AND NOT EXISTS (
               SELECT
                 FROM ONLY :"ledger".targets AS t
                WHERE t.load = o.load
                  AND t.target_oid = o.target_oid
                  AND t.kind = 'staging'
           )
     UNION ALL
    SELECT t.target_oid,
           t.inserted + t.updated
      FROM ONLY :"ledger".targets AS t
     WHERE t.load = :'load'
       AND t.kind = 'staging'
)
SELECT s.oid
  FROM stored AS s
 GROUP BY s.oid
HAVING sum(s.rows) > 0
 ORDER BY s.oid;
