-- change_oid.sql: the oid, in this database, of the table of row c of changes; null if it does not exist
CASE
    WHEN c.origin = :origin THEN c.target_oid
    ELSE (
        SELECT relation.oid
          FROM pg_catalog.pg_class AS relation
          JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
         WHERE namespace.nspname = c.target_schema
           AND relation.relname = c.target_table
    )
END
