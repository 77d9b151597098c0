-- landing_oid.sql: the oid, in this database, of the table that was created for row t of targets; null if it does not exist
CASE
    WHEN t.origin = :origin THEN t.landing_oid
    ELSE (
        SELECT relation.oid
          FROM pg_catalog.pg_class AS relation
          JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
         WHERE namespace.nspname = t.landing_schema
           AND relation.relname = t.landing_table
    )
END
