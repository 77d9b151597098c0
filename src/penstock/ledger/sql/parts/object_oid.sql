-- object_oid.sql: the oid, in this database, of the table of row o of objects; null if it does not exist
CASE
    WHEN o.origin = :origin THEN o.target_oid
    ELSE (
        SELECT relation.oid
          FROM pg_catalog.pg_class AS relation
          JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
         WHERE namespace.nspname = o.target_schema
           AND relation.relname = o.target_table
    )
END
