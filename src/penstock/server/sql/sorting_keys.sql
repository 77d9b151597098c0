-- sorting_keys.sql: the columns of a table's unique indexes, and how values are looked for there
-- returns sorting_suspects.SortingKeyColumn; needs no privilege; PostgreSQL 14+
-- psql -v oid=1259 -f sorting_keys.sql
--
-- Left out are partial indexes, those on expressions, and those that are checked later.
SELECT i.indexrelid::int8 AS index,
       a.attname::text AS name,
       pg_catalog.format('OPERATOR(%I.%s)', s.nspname, o.oprname) AS operator,
       ' COLLATE ' || pg_catalog.quote_ident(cs.nspname) || '.' || pg_catalog.quote_ident(c.collname) AS collation
  FROM pg_catalog.pg_index AS i
 CROSS JOIN ROWS FROM (
           pg_catalog.unnest(i.indkey::int2[]),
           pg_catalog.unnest(i.indclass::oid[]),
           pg_catalog.unnest(i.indcollation::oid[])
       ) WITH ORDINALITY AS k (attnum, opclass, collated, place)
  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
  JOIN pg_catalog.pg_opclass AS p ON p.oid = k.opclass
  JOIN pg_catalog.pg_amop AS m
    ON m.amopfamily = p.opcfamily
   AND m.amoplefttype = p.opcintype
   AND m.amoprighttype = p.opcintype
   AND m.amopstrategy = 3
  JOIN pg_catalog.pg_operator AS o ON o.oid = m.amopopr
  JOIN pg_catalog.pg_namespace AS s ON s.oid = o.oprnamespace
  LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = k.collated
  LEFT JOIN pg_catalog.pg_namespace AS cs ON cs.oid = c.collnamespace
 WHERE i.indrelid = :'oid'::oid
   AND i.indisunique
   AND i.indisvalid
   AND i.indimmediate
   AND i.indpred IS NULL
   AND i.indexprs IS NULL
   AND k.place <= i.indnkeyatts
 ORDER BY i.indexrelid,
          k.place;
