-- write_hold.sql: write a hold on a table or on the server, or replace the holder's earlier hold
-- returns nothing; needs the ledger; PostgreSQL 14+
-- psql -v ledger=penstock -v holder=00000000-0000-0000-0000-000000000001 -v target=0 \
--     -v lock=00112233445566778899aabbccddeeff -v names='{}' -v stands=true -v until=infinity -v client=host \
--     -v reason=load -v server='{}' -f write_hold.sql
\set origin `cat ../../ledger/sql/parts/origin.sql`
INSERT INTO :"ledger".holds (holder, origin, target_oid, lock_key, names, until, client, reason, server)
SELECT :'holder',
       :origin,
       :'target'::bigint::oid,
       coalesce(:'lock', (SELECT l.lock_key FROM ONLY :"ledger".loads AS l WHERE l.id = :'holder'::uuid)),
       :'names',
       CASE WHEN :'stands' THEN coalesce(:'until'::timestamptz, 'infinity') END,
       :'client',
       :'reason',
       :'server'::jsonb
ON CONFLICT (holder, origin, target_oid) DO UPDATE
   SET names = excluded.names,
       until = excluded.until,
       server = excluded.server;
