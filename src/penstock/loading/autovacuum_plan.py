"""Which tables of a load are watched for autovacuum, and where it is then paused. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.model.plan import LoadPlan, TargetPlan
    from penstock.model.table import TableName
    from penstock.server.autovacuum import Visit
    from penstock.server.tables import CreatedTable

# A pause costs two commits and a round trip or ten, and the worker loses what it has begun.
_WORTHWHILE_S = 10.0


def may_pause(target: TargetPlan) -> bool:
    """Whether autovacuum at a table may be paused once it is seen at work there.

    Only an owner may pause it. What is staged comes to its table in one statement at the end, where no moment is left
    to see and pause anything; a replacement is nobody's table yet. To views and foreign tables autovacuum never comes.
    """
    if target.landing != "table":
        return False
    facts = target.facts
    return facts is None or (facts.kind in ("r", "p") and facts.is_owner)


def choose_watched(plan: LoadPlan, created: Sequence[CreatedTable] = ()) -> Mapping[int, TableName]:
    """Return the tables, by oid, at which autovacuum is to be paused once it is seen there."""
    if plan.job.rules.autovacuum != "auto":
        return {}
    watched = {table.oid: table.name for table in created}
    return watched | {
        target.facts.oid: target.facts.name for target in plan.targets if target.facts is not None and may_pause(target)
    }


def choose_paused(visits: Sequence[Visit], *, left: Collection[int], remaining_s: float | None) -> list[Visit]:
    """Return where autovacuum is to be paused; `left` are the relations where it is to be let be.

    `remaining_s` is how long the load will go on, None where that is not known.
    """
    if remaining_s is not None and remaining_s < _WORTHWHILE_S:
        return []
    return [visit for visit in visits if visit.relation_oid not in left and not visit.prevents_wraparound]


def estimate_remaining_s(*, bytes_read: int, size_bytes: int | None, elapsed_s: float) -> float | None:
    """Return how long a load goes on at the rate it has had, None where its size is not known.

    >>> estimate_remaining_s(bytes_read=30, size_bytes=120, elapsed_s=10.0)
    30.0
    """
    if size_bytes is None or bytes_read <= 0:
        return None
    return max(0.0, elapsed_s * (size_bytes - bytes_read) / bytes_read)
