-- server_holds.sql: the loads that may have changed the whole server
-- returns core.sql.NameRow; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -f server_holds.sql
--
-- Their changes are recorded in another database. A temp place (until = 'infinity') is skipped, because it stays until
-- it is removed.
SELECT h.holder::text AS name
  FROM ONLY :"ledger".holds AS h
 WHERE h.target_oid = 0
   AND h.until IS DISTINCT FROM 'infinity';
