-- ddl_grants.sql: who may do what with a table, its columns and its identity sequences, and who granted it
-- returns ddl.definition.Grant; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_grants.sql
--
-- A null relacl stands for the owner's built-in privileges: they are spelt out. A null grantee is PUBLIC.
WITH lists AS (
    SELECT NULL::name AS sequence,
           NULL::name AS "column",
           COALESCE(c.relacl, pg_catalog.acldefault('r', c.relowner)) AS acl,
           c.relowner
      FROM pg_catalog.pg_class AS c
     WHERE c.oid = :'oid'::oid
    UNION ALL
    SELECT NULL,
           a.attname,
           a.attacl,
           c.relowner
      FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
     WHERE a.attrelid = :'oid'::oid
       AND NOT a.attisdropped
    UNION ALL
    SELECT s.relname,
           NULL,
           COALESCE(s.relacl, pg_catalog.acldefault('s', s.relowner)),
           s.relowner
      FROM pg_catalog.pg_depend AS d
      JOIN pg_catalog.pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
     WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjid = :'oid'::oid
       AND d.classid = 'pg_catalog.pg_class'::regclass
       AND d.deptype = 'i'
)
SELECT l.sequence::text AS sequence,
       l."column"::text AS "column",
       e.privilege_type AS privilege,
       CASE WHEN e.grantee <> 0 THEN pg_catalog.pg_get_userbyid(e.grantee)::text END AS grantee,
       pg_catalog.pg_get_userbyid(e.grantor)::text AS grantor,
       e.grantor = l.relowner AS is_by_owner,
       e.is_grantable
  FROM lists AS l
 CROSS JOIN LATERAL pg_catalog.aclexplode(l.acl) AS e
 ORDER BY l.sequence NULLS FIRST,
          l."column" NULLS FIRST,
          e.grantor,
          e.grantee,
          e.privilege_type;
