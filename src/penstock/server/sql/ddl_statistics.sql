-- ddl_statistics.sql: the extended statistics of a table; CREATE STATISTICS name `body` FROM table
-- returns ddl.definition.StatisticsRow; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f ddl_statistics.sql
--
-- Needs penstock's own search_path. The target is null where it is the columns' own.
WITH own AS (
    SELECT s.*,
           n.nspname,
           pg_catalog.pg_get_statisticsobjdef(s.oid) AS whole,
           pg_catalog.format('CREATE STATISTICS %I.%I ', n.nspname, s.stxname) AS head,
           pg_catalog.format(' FROM %I.%I', tn.nspname, t.relname) AS tail
      FROM pg_catalog.pg_statistic_ext AS s
      JOIN pg_catalog.pg_namespace AS n ON n.oid = s.stxnamespace
      JOIN pg_catalog.pg_class AS t ON t.oid = s.stxrelid
      JOIN pg_catalog.pg_namespace AS tn ON tn.oid = t.relnamespace
     WHERE s.stxrelid = :'oid'::oid
)
SELECT own.nspname::text AS schema,
       own.stxname::text AS name,
       CASE
           WHEN pg_catalog.starts_with(own.whole, own.head)
                AND pg_catalog.right(own.whole, pg_catalog.length(own.tail)) = own.tail
           THEN pg_catalog.substr(
                    own.whole,
                    pg_catalog.length(own.head) + 1,
                    pg_catalog.length(own.whole) - pg_catalog.length(own.head) - pg_catalog.length(own.tail)
                )
       END AS body,
       pg_catalog.pg_get_userbyid(own.stxowner)::text AS owner,
       NULLIF(own.stxstattarget, -1)::int AS target,
       pg_catalog.obj_description(own.oid, 'pg_statistic_ext') AS comment
  FROM own
 ORDER BY own.nspname,
          own.stxname;
