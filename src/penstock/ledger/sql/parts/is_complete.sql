-- is_complete.sql: whether an object is complete: its first and last records are committed, and nothing between is missing
-- `r` are all rows of the object in table ranges, and `p` are their parts. Only an object without records has no parts.
coalesce(
    pg_catalog.bool_or(r.has_start) AND pg_catalog.bool_or(r.has_end)
    AND coalesce(
            pg_catalog.range_agg(p.part) = pg_catalog.range_merge(pg_catalog.range_agg(p.part))::int8multirange,
            true
        ),
    false
)
