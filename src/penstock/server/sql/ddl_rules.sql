-- ddl_rules.sql: the rewrite rules of a table
-- returns ddl.definition.RuleRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_rules.sql
SELECT r.rulename::text AS name,
       pg_catalog.pg_get_ruledef(r.oid) AS definition,
       r.ev_enabled::text AS enabled,
       pg_catalog.obj_description(r.oid, 'pg_rewrite') AS comment
  FROM pg_catalog.pg_rewrite AS r
 WHERE r.ev_class = :'oid'::oid
 ORDER BY r.rulename;
