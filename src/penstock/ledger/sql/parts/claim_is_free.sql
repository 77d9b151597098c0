-- claim_is_free.sql: whether claim c is free
-- A member that has just joined is missing in this statement's snapshot, but it has not ended.
(
    c.member IS NULL
    OR EXISTS (
           SELECT
             FROM ONLY :"ledger".members AS m
            WHERE m.load = c.load
              AND m.number = c.member
              AND m.ended_at IS NOT NULL
       )
)
