-- not_ours.sql: false for the statements of pg_stat_statements that penstock's own replays and proofs have run
(pg_catalog.starts_with(s.query, :'explain') OR pg_catalog.strpos(s.query, 'penstock_proof') > 0) IS NOT TRUE
