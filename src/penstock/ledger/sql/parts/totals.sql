-- totals.sql: the counts of load l, as one JSON object
pg_catalog.json_build_object(
    'rows', l.rows,
    'suppressed',
    coalesce((SELECT sum(r.suppressed) FROM ONLY :"ledger".ranges AS r WHERE r.load = l.id), 0)
    + coalesce((SELECT sum(t.suppressed) FROM ONLY :"ledger".targets AS t WHERE t.load = l.id), 0),
    'inserted', coalesce((SELECT sum(t.inserted) FROM ONLY :"ledger".targets AS t WHERE t.load = l.id), 0),
    'updated', coalesce((SELECT sum(t.updated) FROM ONLY :"ledger".targets AS t WHERE t.load = l.id), 0),
    'duplicates', coalesce((SELECT sum(t.duplicates) FROM ONLY :"ledger".targets AS t WHERE t.load = l.id), 0),
    'existing', coalesce((SELECT sum(t.existing) FROM ONLY :"ledger".targets AS t WHERE t.load = l.id), 0)
)
