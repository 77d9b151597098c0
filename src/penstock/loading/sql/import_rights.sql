-- import_rights.sql: whether the current role may import from S3 by the extension aws_s3
-- returns core.values.mode.ImportRights; needs no privilege; PostgreSQL 14+
-- psql -f import_rights.sql
--
-- `is_trusted` is true if the function belongs to the extension, or to a superuser. Any other function could run
-- anything with the loader's rights.
SELECT CURRENT_USER::text AS role,
       EXISTS (SELECT FROM pg_catalog.pg_available_extensions AS a WHERE a.name = 'aws_s3') AS is_available,
       f.oid IS NOT NULL AS "exists",
       coalesce(
           o.rolsuper
           OR EXISTS (
               SELECT
                 FROM pg_catalog.pg_depend AS d
                 JOIN pg_catalog.pg_extension AS e ON e.oid = d.refobjid AND e.extname = 'aws_s3'
                WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
                  AND d.objid = f.oid
                  AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
                  AND d.deptype = 'e'
           ),
           false
       ) AS is_trusted,
       coalesce(pg_catalog.has_schema_privilege(f.pronamespace, 'USAGE'), false) AS may_use,
       coalesce(pg_catalog.has_function_privilege(f.oid, 'EXECUTE'), false) AS may_execute
  FROM (SELECT) AS one
  LEFT JOIN (
           SELECT p.oid, p.pronamespace, p.proowner
             FROM pg_catalog.pg_proc AS p
             JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
            WHERE n.nspname = 'aws_s3'
              AND p.proname = 'table_import_from_s3'
              -- The function takes six texts. The texts of the credentials may follow, if they have defaults.
              AND p.proargtypes::text ~ '^25( 25){5,}$'
              AND p.pronargs - p.pronargdefaults <= 6
            ORDER BY p.pronargs
            LIMIT 1
       ) AS f
    ON true
  LEFT JOIN pg_catalog.pg_roles AS o ON o.oid = f.proowner;
