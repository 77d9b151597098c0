-- aws_extension.sql: whether aws_s3 is installed or available, whether aws_commons is and others need it, and their schemas
-- returns rds.s3_import.values.ExtensionFacts; needs no privilege; PostgreSQL 14+
-- psql -f aws_extension.sql
SELECT d.oid AS database_oid,
       d.datname::text AS database,
       EXISTS (SELECT FROM pg_catalog.pg_available_extensions AS a WHERE a.name = 'aws_s3') AS is_available,
       EXISTS (SELECT FROM pg_catalog.pg_extension AS e WHERE e.extname = 'aws_s3') AS is_installed,
       EXISTS (SELECT FROM pg_catalog.pg_extension AS e WHERE e.extname = 'aws_commons') AS has_commons,
       EXISTS (
           SELECT
             FROM pg_catalog.pg_depend AS p
             JOIN pg_catalog.pg_extension AS c ON c.oid = p.refobjid AND c.extname = 'aws_commons'
             JOIN pg_catalog.pg_extension AS e ON e.oid = p.objid AND e.extname <> 'aws_s3'
            WHERE p.classid = 'pg_catalog.pg_extension'::regclass
              AND p.refclassid = 'pg_catalog.pg_extension'::regclass
       ) AS is_commons_needed,
       ARRAY(
           SELECT n.nspname::text
             FROM pg_catalog.pg_namespace AS n
            WHERE n.nspname IN ('aws_s3', 'aws_commons')
            ORDER BY n.nspname
       ) AS schemas
  FROM pg_catalog.pg_database AS d
 WHERE d.datname = pg_catalog.current_database();
