-- ddl_handover.sql: the statements that transfer an old table's sequences, and the names of its parts, to a new one
-- returns changes.tables.definition.HandoverRow; needs no privilege; PostgreSQL 14+
-- psql -v old=1259 -v new=1259 -f ddl_handover.sql
--
-- Needs penstock's own search_path. `identity` gives an identity's sequence its type, because LIKE makes it bigint, and
-- sets the new sequence to the further of the old and the new value, so that no value is returned twice. `owned`
-- transfers a serial column's sequence. `rename` runs after the old table is dropped. `statistics` creates extended
-- statistics, because LIKE of PostgreSQL 14 uses wrong columns if an earlier column was dropped.
WITH sequences AS (
    SELECT d.refobjid AS relation,
           a.attname,
           d.deptype,
           s.oid,
           s.relname,
           pg_catalog.format('%I.%I', n.nspname, s.relname) AS label,
           pg_catalog.format_type(q.seqtypid, NULL) AS type_name,
           pg_catalog.sign(q.seqincrement) AS direction
      FROM pg_catalog.pg_depend AS d
      JOIN pg_catalog.pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
      JOIN pg_catalog.pg_namespace AS n ON n.oid = s.relnamespace
      JOIN pg_catalog.pg_sequence AS q ON q.seqrelid = s.oid
      JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
     WHERE d.refclassid = 'pg_catalog.pg_class'::regclass
       AND d.refobjid IN (:'old'::oid, :'new'::oid)
       AND d.classid = 'pg_catalog.pg_class'::regclass
       AND d.deptype IN ('a', 'i')
),
identities AS (
    SELECT old.label AS old,
           old.relname,
           new.label AS new,
           new.oid,
           old.type_name,
           old.direction
      FROM sequences AS old
      JOIN sequences AS new ON new.attname = old.attname AND new.deptype = 'i' AND new.relation = :'new'::oid
     WHERE old.deptype = 'i'
       AND old.relation = :'old'::oid
),
statistics AS (
    SELECT n.nspname,
           s.stxname,
           pg_catalog.format('penstock_%s_statistics_%s', new.oid, s.oid) AS working,
           pg_catalog.pg_get_statisticsobjdef(s.oid) AS whole,
           pg_catalog.format('CREATE STATISTICS %I.%I ', n.nspname, s.stxname) AS head,
           s.stxowner::regrole AS owner,
           GREATEST(s.stxstattarget, -1) AS target,
           pg_catalog.format(' FROM %I.%I', m.nspname, old.relname) AS tail,
           pg_catalog.format(' FROM %I.%I', m.nspname, new.relname) AS new_tail
      FROM pg_catalog.pg_statistic_ext AS s
      JOIN pg_catalog.pg_namespace AS n ON n.oid = s.stxnamespace
      JOIN pg_catalog.pg_class AS old ON old.oid = s.stxrelid
      JOIN pg_catalog.pg_namespace AS m ON m.oid = old.relnamespace
      JOIN pg_catalog.pg_class AS new ON new.oid = :'new'::oid
     WHERE s.stxrelid = :'old'::oid
)
SELECT 'identity' AS step,
       pg_catalog.format(
           'ALTER SEQUENCE %3$s AS %4$s; SELECT pg_catalog.setval(%1$s::oid::regclass, s.last_value, s.is_called)'
           || ' FROM (SELECT u.last_value, u.is_called'
           || ' FROM (SELECT last_value, is_called FROM %2$s UNION ALL SELECT last_value, is_called FROM %3$s) AS u'
           || ' ORDER BY u.last_value * %5$s DESC, u.is_called DESC LIMIT 1) AS s',
           i.oid,
           i.old,
           i.new,
           i.type_name,
           i.direction
       ) AS statement
  FROM identities AS i
UNION ALL
SELECT 'rename', pg_catalog.format('ALTER SEQUENCE %s RENAME TO %I', i.new, i.relname)
  FROM identities AS i
UNION ALL
SELECT 'owned', pg_catalog.format('ALTER SEQUENCE %s OWNED BY %I.%I.%I', s.label, n.nspname, c.relname, s.attname)
  FROM sequences AS s
  JOIN pg_catalog.pg_class AS c ON c.oid = :'new'::oid
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE s.deptype = 'a'
   AND s.relation = :'old'::oid
UNION ALL
SELECT 'rename', pg_catalog.format('ALTER STATISTICS %I.%I RENAME TO %I', s.nspname, s.working, s.stxname)
  FROM statistics AS s
UNION ALL
SELECT 'statistics',
       pg_catalog.format(
           'CREATE STATISTICS %1$I.%2$I %3$s%4$s; ALTER STATISTICS %1$I.%2$I SET STATISTICS %5$s;'
           || ' ALTER STATISTICS %1$I.%2$I OWNER TO %6$s',
           s.nspname,
           s.working,
           pg_catalog.left(pg_catalog.substr(s.whole, pg_catalog.length(s.head) + 1), - pg_catalog.length(s.tail)),
           s.new_tail,
           s.target,
           s.owner
       )
  FROM statistics AS s;
