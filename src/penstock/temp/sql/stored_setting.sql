-- stored_setting.sql: the value of a setting that a database, a role, or a role in a database has
-- returns (value); needs no privilege; PostgreSQL 14+
-- psql -v setting=temp_tablespaces -v database=postgres -v role=postgres -f stored_setting.sql
--
-- Elements of setconfig are name=value. Each name occurs once.
SELECT pg_catalog.substr(c.line, pg_catalog.length(:'setting'::text) + 2) AS value
  FROM pg_catalog.pg_db_role_setting AS s
  LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
  LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
 CROSS JOIN pg_catalog.unnest(s.setconfig) AS c (line)
 WHERE d.datname IS NOT DISTINCT FROM :'database'::name
   AND r.rolname IS NOT DISTINCT FROM :'role'::name
   AND pg_catalog.starts_with(c.line, :'setting'::text || '=');
