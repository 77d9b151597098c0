-- ledger_state.sql: penstock's schema (name null) and named tables in it: whose they are, and what would run as their users
-- returns ledger.trust.LedgerRelation; needs no privilege; PostgreSQL 14+
-- psql -v schema=penstock -v tables='{loads,objects}' -f ledger_state.sql
--
-- Expressions are without line ends and the schema's name. Trusted are the current role, the database's owner and superusers. An index expression or a default is its owner's.
WITH trusted AS (
    SELECT r.oid
      FROM pg_catalog.pg_roles AS r
     WHERE r.rolsuper
        OR r.rolname = CURRENT_USER
        OR r.oid = (SELECT d.datdba FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
)
SELECT NULL::text AS name,
       pg_catalog.pg_get_userbyid(n.nspowner)::text AS owner,
       n.nspowner IN (SELECT t.oid FROM trusted AS t) AS is_trusted,
       NULL::text AS comment,
       '{}'::text[] AS additions
  FROM pg_catalog.pg_namespace AS n
 WHERE n.nspname = :'schema'::text
UNION ALL
SELECT c.relname::text,
       pg_catalog.pg_get_userbyid(c.relowner)::text,
       c.relowner IN (SELECT t.oid FROM trusted AS t) AND c.relkind = 'r',
       pg_catalog.obj_description(c.oid, 'pg_class'),
       ARRAY(
           SELECT pg_catalog.format('trigger %I', g.tgname)
             FROM pg_catalog.pg_trigger AS g
            WHERE g.tgrelid = c.oid
              AND NOT g.tgisinternal
           UNION ALL
           SELECT pg_catalog.format('rule %I', w.rulename)
             FROM pg_catalog.pg_rewrite AS w
            WHERE w.ev_class = c.oid
           UNION ALL
           SELECT pg_catalog.regexp_replace(
                      pg_catalog.replace(
                          pg_catalog.format(
                              'policy %I FOR %s TO %s USING %s WITH CHECK %s',
                              p.polname,
                              p.polcmd,
                              p.polroles::text,
                              pg_catalog.pg_get_expr(p.polqual, p.polrelid),
                              coalesce(pg_catalog.pg_get_expr(p.polwithcheck, p.polrelid), 'the same')
                          ),
                          pg_catalog.quote_ident(:'schema'::text) || '.',
                          ''
                      ),
                      '\s+',
                      ' ',
                      'g'
                  ) || CASE WHEN p.polpermissive THEN '' ELSE ' RESTRICTIVE' END
             FROM pg_catalog.pg_policy AS p
            WHERE p.polrelid = c.oid
           UNION ALL
           SELECT pg_catalog.format('child table %s', i.inhrelid::regclass)
             FROM pg_catalog.pg_inherits AS i
            WHERE i.inhparent = c.oid
            ORDER BY 1
       )
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE n.nspname = :'schema'::text
   AND c.relname = ANY (:'tables'::text[]);
