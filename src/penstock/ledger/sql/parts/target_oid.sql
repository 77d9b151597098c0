-- target_oid.sql: the oid, in this database, of the table of row t of targets; null if it does not exist
CASE
    WHEN t.origin = :origin THEN t.target_oid
    ELSE (
        SELECT relation.oid
          FROM pg_catalog.pg_class AS relation
          JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
         WHERE namespace.nspname = t.target_schema
           AND relation.relname = t.target_table
    )
END
