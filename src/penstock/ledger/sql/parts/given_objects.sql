-- given_objects.sql: the objects to be recorded, a row each
ROWS FROM (
    unnest(:'numbers'::integer[]), unnest(:'oids'::oid[]), unnest(:'schemas'::name[]), unnest(:'tables'::name[]),
    unnest(:'uris'::text[]), unnest(:'versions'::text[]), unnest(:'sizes'::bigint[]), unnest(:'ctimes'::bigint[]),
    unnest(:'units'::text[])
)
