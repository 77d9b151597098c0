-- shape_hindrances.sql: why rows that break a key or foreign key could not be told, and taken out again, after a load
-- returns shape.hindrances.Hindrance; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -v columns={} -f shape_hindrances.sql
--
-- The name of a key or foreign key is null where all of the table's are meant. `because_of_oid` is the table whose foreign
-- key is in the way. `columns` are those that the files fill. Fields of later versions are read through JSON.
SELECT NULL::text AS name,
       NULL::oid AS because_of_oid,
       h.reason
  FROM pg_catalog.pg_class AS c
 CROSS JOIN LATERAL (
           VALUES
               (
                   EXISTS (SELECT FROM pg_catalog.pg_trigger AS g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal),
                   'triggers would fire for rows that are taken out again'
               ),
               (
                   EXISTS (SELECT FROM pg_catalog.pg_rewrite AS w WHERE w.ev_class = c.oid),
                   'rules would act on rows that are taken out again'
               ),
               (pg_catalog.row_security_active(c.oid), 'row-level security may hide rows'),
               (NOT pg_catalog.has_table_privilege(c.oid, 'SELECT'), 'the role may not read the table'),
               (NOT pg_catalog.has_table_privilege(c.oid, 'DELETE'), 'the role may not delete rows of the table'),
               (
                   NOT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY'),
                   'the role may make no temporary tables'
               )
       ) AS h (holds, reason)
 WHERE c.oid = :'oid'::oid
   AND h.holds
 UNION ALL
SELECT NULL,
       k.conrelid,
       pg_catalog.format('foreign key "%s" acts on deletes', k.conname)
  FROM pg_catalog.pg_constraint AS k
 WHERE k.contype = 'f'
   AND k.confrelid = :'oid'::oid
   AND k.conrelid <> k.confrelid
   AND k.confdeltype NOT IN ('a', 'r')
 UNION ALL
SELECT k.conname::text,
       NULL,
       h.reason
  FROM pg_catalog.pg_constraint AS k
 CROSS JOIN LATERAL (
           VALUES
               (
                   EXISTS (
                       SELECT
                         FROM pg_catalog.pg_attribute AS a
                        WHERE a.attrelid = k.conrelid
                          AND a.attnum = ANY (k.conkey)
                          AND a.attname <> ALL (:'columns'::text[])
                   ),
                   'the files do not fill all of its columns'
               ),
               (k.confmatchtype = 'f' AND pg_catalog.cardinality(k.conkey) > 1, 'it is MATCH FULL'),
               (COALESCE((pg_catalog.to_jsonb(k) ->> 'conperiod')::bool, false), 'it is of a PERIOD'),
               (
                   NOT pg_catalog.has_table_privilege(k.confrelid, 'SELECT')
                   OR pg_catalog.row_security_active(k.confrelid),
                   pg_catalog.format('the role may not read all of table %s', k.confrelid::pg_catalog.regclass)
               )
       ) AS h (holds, reason)
 WHERE k.contype = 'f'
   AND k.conrelid = :'oid'::oid
   AND h.holds
 UNION ALL
SELECT c.relname::text,
       NULL,
       h.reason
  FROM pg_catalog.pg_index AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
 CROSS JOIN LATERAL (
           VALUES
               (i.indisexclusion, 'only the table can tell what excludes what'),
               (
                   EXISTS (
                       SELECT
                         FROM pg_catalog.pg_attribute AS a
                        WHERE a.attrelid = i.indrelid
                          AND a.attnum > 0
                          AND a.attname <> ALL (:'columns'::text[])
                          AND (
                                  a.attnum = ANY (i.indkey::int2[])
                                  OR EXISTS (
                                      SELECT
                                        FROM pg_catalog.pg_depend AS d
                                       WHERE d.classid = 'pg_catalog.pg_class'::regclass
                                         AND d.objid = i.indexrelid
                                         AND d.refclassid = 'pg_catalog.pg_class'::regclass
                                         AND d.refobjid = i.indrelid
                                         AND d.refobjsubid = a.attnum
                                  )
                              )
                   ),
                   'the files do not fill all of its columns'
               ),
               (
                   COALESCE((pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false),
                   'nulls are equal in it'
               ),
               (
                   EXISTS (
                       SELECT
                         FROM pg_catalog.pg_opclass AS f
                        WHERE f.oid = ANY (i.indclass::oid[])
                          AND NOT f.opcdefault
                          AND f.opcname NOT LIKE '%pattern_ops'
                   ),
                   'it has an operator class of its own'
               )
       ) AS h (holds, reason)
 WHERE i.indrelid = :'oid'::oid
   AND (i.indisunique OR i.indisexclusion)
   AND h.holds;
