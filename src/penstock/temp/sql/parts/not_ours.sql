-- not_ours.sql: whether a row of pg_stat_statements is not of a replay or of a placement's proof, which spill too
(pg_catalog.starts_with(s.query, :'explain') OR pg_catalog.strpos(s.query, 'penstock_proof') > 0) IS NOT TRUE
