-- claim_is_free.sql: whether claim c is free
-- The query looks for a member that has ended. A member that has just joined may be missing in the snapshot, but has
-- not ended.
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
