-- has_sources.sql: whether the job of load l has all of its sources: no standard input, and no URL without its query
NOT pg_catalog.jsonb_path_exists(
    l.job, '$.targets[*].sources[*] ? (@ == "-" || @ like_regex "^http.*[?][*][*][*]$")'
)
