-- settings.sql: the databases and roles with their own temp_tablespaces, and what each has set
-- returns temp.usage.values.SettingRow; needs no privilege; PostgreSQL 14+
-- psql -f settings.sql
SELECT d.datname::text AS database,
       r.rolname::text AS role,
       pg_catalog.substr(c.line, pg_catalog.length('temp_tablespaces=') + 1) AS value,
       ARRAY(
           SELECT t.spcname::text
             FROM pg_catalog.pg_tablespace AS t
             JOIN pg_catalog.pg_database AS own ON own.datname = coalesce(d.datname, pg_catalog.current_database())
            WHERE r.oid IS NOT NULL
              AND t.spcname <> 'pg_global'
              -- The database's own tablespace needs no privilege.
              AND t.oid <> own.dattablespace
              AND NOT pg_catalog.has_tablespace_privilege(r.oid, t.oid, 'CREATE')
            ORDER BY t.spcname
       ) AS denied
  FROM pg_catalog.pg_db_role_setting AS s
  LEFT JOIN pg_catalog.pg_database AS d
    ON d.oid = s.setdatabase
  LEFT JOIN pg_catalog.pg_roles AS r
    ON r.oid = s.setrole
 CROSS JOIN pg_catalog.unnest(s.setconfig) AS c (line)
 WHERE pg_catalog.starts_with(c.line, 'temp_tablespaces=')
 ORDER BY d.datname NULLS FIRST, r.rolname NULLS FIRST;
