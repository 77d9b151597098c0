-- copy_facts.sql: what two servers must have in common for their times to be comparable
-- returns temp.copies.CopyFacts; needs no privilege; PostgreSQL 14+
-- psql -f copy_facts.sql
SELECT pg_catalog.current_setting('server_version') AS version,
       (
           SELECT pg_catalog.jsonb_object_agg(s.name, pg_catalog.current_setting(s.name) ORDER BY s.name)
             FROM pg_catalog.pg_settings AS s
            WHERE s.name IN (
                      'effective_cache_size',
                      'hash_mem_multiplier',
                      'jit',
                      'max_parallel_workers',
                      'max_parallel_workers_per_gather',
                      'random_page_cost',
                      'shared_buffers',
                      'work_mem'
                  )
       ) AS settings;
