-- server_identity.sql: the identity of this server
-- returns core.values.server.ServerIdentity; needs no privilege; PostgreSQL 14+
-- psql -f server_identity.sql
--
-- After a promotion, WAL files have the new timeline at once, and the control file has it only later. Amazon RDS's
-- resource id is known only to AWS.
SELECT (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c) AS system_identifier,
       CASE
           WHEN pg_catalog.pg_is_in_recovery()
               THEN (SELECT c.timeline_id FROM pg_catalog.pg_control_checkpoint() AS c)
           ELSE (
               'x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8)
           )::bit(32)::int
       END AS timeline,
       pg_catalog.host(pg_catalog.inet_server_addr()) AS address,
       pg_catalog.inet_server_port() AS port,
       NULL::text AS resource_id;
