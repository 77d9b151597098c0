-- casts.sql: the casts for comparing a foreign key's columns that call a function owned by an ordinary role
-- returns changes.tables.rebuild.CastRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v columns={relname} -f casts.sql
--
-- `columns` are names as SQL quotes them. VALIDATE runs such a function as the role that validates. Values of a domain
-- are cast as those of its base type.
WITH RECURSIVE compared AS (
    SELECT a.attname::text AS name,
           a.atttypid AS oid
      FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid = :'oid'::oid
       AND a.attnum > 0
       AND NOT a.attisdropped
       AND pg_catalog.quote_ident(a.attname) = ANY (:'columns'::text[])
     UNION
    SELECT c.name,
           t.typbasetype
      FROM compared AS c
      JOIN pg_catalog.pg_type AS t ON t.oid = c.oid
     WHERE t.typtype = 'd'
)
SELECT c.name AS column,
       r.rolname::text AS owner
  FROM compared AS c
  JOIN pg_catalog.pg_cast AS k ON k.castsource = c.oid
  JOIN pg_catalog.pg_proc AS p ON p.oid = k.castfunc
  JOIN pg_catalog.pg_roles AS r ON r.oid = p.proowner
 WHERE k.castcontext = 'i'
   AND NOT r.rolsuper
 ORDER BY c.name,
          r.rolname;
