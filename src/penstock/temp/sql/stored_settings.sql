-- stored_settings.sql: the databases, roles, and roles in databases that have a value of a setting
-- returns (whose, value); needs no privilege; PostgreSQL 14+
-- psql -v setting=temp_tablespaces -f stored_settings.sql
SELECT pg_catalog.concat_ws(
           ' in ', 'role ' || pg_catalog.quote_ident(r.rolname), 'database ' || pg_catalog.quote_ident(d.datname)
       ) AS whose,
       pg_catalog.substr(c.line, pg_catalog.length(:'setting'::text) + 2) AS value
  FROM pg_catalog.pg_db_role_setting AS s
  LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.setdatabase
  LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.setrole
 CROSS JOIN pg_catalog.unnest(s.setconfig) AS c (line)
 WHERE pg_catalog.starts_with(c.line, :'setting'::text || '=')
 ORDER BY 1;
