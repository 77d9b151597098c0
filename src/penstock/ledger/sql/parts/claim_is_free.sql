-- claim_is_free.sql: whether claim c is free
-- The query looks for an ended member, not for a live one, because a member that has just joined may be missing in the
-- snapshot.
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
