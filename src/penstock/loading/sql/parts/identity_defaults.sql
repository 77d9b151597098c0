-- identity_defaults.sql: the actions that give identity columns of table c the values of its root's sequences
ARRAY(
    SELECT pg_catalog.format(
               'ALTER COLUMN %I SET DEFAULT nextval(%L::regclass)::%s',
               a.attname,
               d.objid::regclass,
               pg_catalog.format_type(a.atttypid, NULL)
           )
      FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_attribute AS o
        ON o.attrelid = pg_catalog.pg_partition_root(c.oid) AND o.attname = a.attname
      JOIN pg_catalog.pg_depend AS d
        ON d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjid = o.attrelid
       AND d.refobjsubid = o.attnum
       AND d.classid = 'pg_catalog.pg_class'::regclass
       AND d.deptype = 'i'
     WHERE a.attrelid = c.oid
       AND a.attidentity <> ''
     ORDER BY a.attnum
)
