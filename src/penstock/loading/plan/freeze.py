"""Decides whether COPY freezes the rows of a load, so that nobody has to write their pages again. Pure.

COPY may freeze rows if its own transaction has created or truncated the table. So one session sends all rows of a table
in one transaction, and a table of which a part was sent begins again after a fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.core.errors import UsageError
from penstock.core.tuning import BatchPlan
from penstock.core.values.job import LoadRules
from penstock.core.values.mode import RoutePlan
from penstock.core.values.table import TableName
from penstock.loading.values.plan import (
    FreezeChoice,
    LoadPlan,
    RowFacts,
    SessionPlan,
    TargetPlan,
    stored_size,
    total_size,
)

# Sessions end at about the same time if none sends more than this many times the bytes of an average session.
_NEARLY_EVEN = 1.1

# If the number of the server's CPUs is not known, a load starts with few sessions and adds more. If their number may
# grow to more than this many times the number at the start, the added sessions may gain more than COPY FREEZE does.
_MUCH_GROWTH = 3


def choose_freeze(targets: Sequence[TargetPlan], facts: RowFacts) -> FreezeChoice:
    """Return whether COPY freezes the rows, and why.

    Raises UsageError if --freeze always is given and COPY cannot freeze them.
    """
    asked = facts.rules.freeze
    if asked == "never" or not targets:
        return FreezeChoice()
    obstacle = next(_find_obstacles(targets, facts.rules, facts.route), None)
    if asked == "always":
        if obstacle is not None:
            what, why = obstacle
            raise UsageError(f"--freeze always cannot be used with {what}", detail=why, hint="Use --freeze auto.")
        if all(target.facts is not None and not (target.landing.is_fresh or target.is_replaced) for target in targets):
            return FreezeChoice(reason="the table exists, and keeps its rows")
        return FreezeChoice(is_used=True, reason="as requested")
    reason = None if obstacle is not None else _find_reason(targets, facts)
    return FreezeChoice() if reason is None else FreezeChoice(is_used=True, reason=reason)


def may_freeze(plan: LoadPlan) -> bool:
    """Return whether COPY could freeze the rows with --freeze always."""
    return next(_find_obstacles(plan.targets, plan.job.rules, plan.route), None) is None


def send_whole_tables(
    targets: Sequence[TargetPlan], batch: BatchPlan, sessions: SessionPlan
) -> tuple[BatchPlan, SessionPlan]:
    """Return the batches and sessions of a load with COPY FREEZE: a batch is all rows of one table.

    There are at most as many sessions as tables. If all rows of the load are loaded in one transaction, `batch` and
    `sessions` are returned unchanged.
    """
    if batch.duration_s is None:
        return batch, sessions
    count = min(sessions.initial, len({target.table for target in targets}))
    why = sessions.reason if count == sessions.initial else "COPY FREEZE: one for each table"
    return (
        replace(batch, limit_bytes=None, duration_s=None, is_one_table=True),
        replace(sessions, initial=count, maximum=count, is_adaptive=False, reason=why),
    )


def _find_obstacles(targets: Sequence[TargetPlan], rules: LoadRules, route: RoutePlan) -> Iterator[tuple[str, str]]:
    """Yield each option or table of the load with which COPY cannot freeze rows, and why."""
    if rules.on_error == "reject":
        yield "--on-error reject", "COPY cannot freeze rows under the savepoints that rejecting records needs."
    if rules.join:
        yield "--join", "One session has to send all rows of a table."
    if rules.yields_for is not None:
        yield rules.yields_for, "One transaction has all rows of a table, and cannot pause."
    if route.is_import:
        yield "--via server", "The server copies the objects itself."
    for target in targets:
        yield from _find_target_obstacles(target)
    filled = [target for target in targets if target.fills_table and target.facts is not None]
    for target in filled:
        referring = [
            other for other in filled if other.facts and target.facts and target.facts.oid in other.facts.references
        ]
        if any(other.table != target.table for other in referring):
            yield (
                f'a foreign key that refers to table "{target.table}"',
                "A table that a foreign key of another table refers to cannot be truncated by itself.",
            )
        elif referring:
            yield (
                f'a foreign key by which table "{target.table}" refers to itself',
                "The check of the key locks the rows, and a page with locked rows is not frozen.",
            )


def _find_target_obstacles(target: TargetPlan) -> Iterator[tuple[str, str]]:
    kinds = {"p": "is partitioned", "f": "is a foreign table", "v": "is a view", "m": "is a view"}
    if target.facts is not None and target.facts.kind in kinds:
        what = f'table "{target.table}", which {kinds[target.facts.kind]}'
        yield what, "PostgreSQL freezes rows of plain tables only."
    if target.facts is not None and target.facts.suppressing_triggers:
        what = f'row triggers of table "{target.table}" that fire before or instead of INSERT'
        yield what, "COPY then stores one row at a time, and marks no page as frozen."
    if target.is_staged:
        yield "records that are staged (--mode, --atomic, --transform)", "COPY fills a staging table."
    elif target.facts is not None and not target.landing.is_fresh and not target.job.create:
        mode = target.job.mode
        yield f"--mode {mode}", "COPY freezes rows only of a table that the load creates, truncates or replaces."


def _find_reason(targets: Sequence[TargetPlan], facts: RowFacts) -> str | None:
    """Return why the load is as fast with one session for each table, None if it may be slower.

    Return None also if a table exists and is not replaced, because its readers would have to wait until the load ends.
    """
    if any(target.facts is not None and not target.is_replaced for target in targets):
        return None
    size_bytes, tuning, sizes = stored_size(targets), facts.tuning, _sizes(targets)
    if size_bytes is None or size_bytes < tuning.least_frozen_bytes or max(sizes) > tuning.most_frozen_bytes:
        return None
    if facts.sessions.initial == 1 and not facts.sessions.is_adaptive:
        return "one session sends all rows"
    return "one session for each table is as fast" if _is_balanced(facts.sessions, sizes) else None


def _is_balanced(sessions: SessionPlan, sizes: Sequence[int]) -> bool:
    """Return whether sessions that each send whole tables, the largest first, end at about the same time."""
    if sessions.maximum > _MUCH_GROWTH * sessions.initial:
        return False
    shares = [0] * sessions.initial
    for table_bytes in sorted(sizes, reverse=True):
        shares[shares.index(min(shares))] += table_bytes
    return max(shares) * sessions.initial <= _NEARLY_EVEN * sum(sizes)


def _sizes(targets: Sequence[TargetPlan]) -> Sequence[int]:
    """Return the stored bytes of the objects of each table."""
    by_table = defaultdict[TableName, int](int)
    for target in targets:
        by_table[target.table] += total_size(target.objects) or 0
    return list(by_table.values())
