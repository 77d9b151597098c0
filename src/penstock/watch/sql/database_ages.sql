-- database_ages.sql: the oldest transaction and multixact numbers of each database, and its checksum failures
-- returns (counters); needs no privilege; PostgreSQL 14+
-- psql -f database_ages.sql
SELECT pg_catalog.jsonb_build_object(
           'datname', d.datname,
           'xid_age', pg_catalog.age(d.datfrozenxid),
           'mxid_age', pg_catalog.mxid_age(d.datminmxid),
           'datallowconn', d.datallowconn,
           'checksum_failures', pg_catalog.pg_stat_get_db_checksum_failures(d.oid)
       ) AS counters
  FROM pg_catalog.pg_database AS d
 UNION ALL
SELECT pg_catalog.jsonb_build_object(
           'datname', '(catalogs that all share)',
           'checksum_failures', pg_catalog.pg_stat_get_db_checksum_failures(0)
       );
