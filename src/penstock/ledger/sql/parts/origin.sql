-- origin.sql: the origin of the oids that are recorded now: cluster, database and ledger
-- If a role has no EXECUTE on pg_control_system, a statement that names this function fails, even if it does not call
-- it. So the function is called through ts_stat, which gets the query as a text. For such a role, only the other two
-- parts of the origin are compared.
(
    SELECT pg_catalog.concat_ws(
               '/',
               CASE
                   WHEN pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
                   THEN (
                       SELECT s.word
                         FROM pg_catalog.ts_stat(
                                  'SELECT pg_catalog.array_to_tsvector(ARRAY[c.system_identifier::pg_catalog.text])'
                                  ' FROM pg_catalog.pg_control_system() AS c'
                              ) AS s
                   )
                   ELSE 'unknown'
               END,
               d.oid,
               pg_catalog.to_regclass(pg_catalog.concat(pg_catalog.quote_ident(:'ledger'), '.loads'))::pg_catalog.oid
           )
      FROM pg_catalog.pg_database AS d
     WHERE d.datname = pg_catalog.current_database()
)
