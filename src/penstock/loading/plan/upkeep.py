"""After a load: which tables are vacuumed and analyzed, and whether a checkpoint follows. Pure.

Why, and what it costs: docs/decisions/0015-after-the-load.md.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from penstock.loading.plan.notices import list_names
from penstock.model.load.upkeep import CheckpointDecision, VacuumPlan, VacuumStep
from penstock.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.model.load.upkeep import FilledTable, Relation

# A build of the server with another size is not worth a question: sizes here are orders of magnitude.
_PAGE_BYTES = 8192

# VACUUM of a table of so many times what a load stored may take longer than the load. Below 64 MiB nobody notices.
_MUCH_LARGER = 10
_SMALL_BYTES = 64 * MIB

# Below, a checkpoint comes by itself at the end of checkpoint_timeout and has little to write.
_CHECKPOINT_LEAST_BYTES = GIB


def decide_vacuum(
    relations: Sequence[Relation],
    filled: Iterable[FilledTable],
    *,
    before: Mapping[int, Relation],
    stored_bytes: float,
    major: int,
    analyzed: Collection[int] = (),
) -> VacuumPlan:
    """Return what to vacuum and to analyze after a load.

    `relations` are the tables that were filled with their partitions, `before` the partitions by oid as they were when
    the load began, as far as that is known: those that took no rows are left out. `stored_bytes` is what the load has
    copied: a table that is more than ten times larger is only analyzed. Tables in `analyzed` have statistics of just
    now.
    """
    wanted = {table.oid for table in filled}
    steps: list[VacuumStep] = []
    forbidden: list[Relation] = []
    for root_oid, group in groupby(relations, key=lambda relation: relation.root_oid):
        if root_oid not in wanted:
            continue
        tree = list(group)
        vacuums = not _is_much_larger(tree, stored_bytes)
        touched = [relation for relation in tree if relation.kind == "r" and _is_touched(relation, before)]
        forbidden += [relation for relation in touched if not relation.may_vacuum]
        root = next((relation for relation in tree if relation.oid == root_oid and relation.kind == "p"), None)
        parent = None if root is None else _analyze_parent(root, tree, major=major)
        has_all = parent is not None and not parent.is_only
        for relation in touched:
            analyzes = not has_all and relation.oid not in analyzed
            if relation.may_vacuum and (vacuums or analyzes):
                steps.append(VacuumStep(relation=relation, vacuums=vacuums, analyzes=analyzes))
        steps += [] if parent is None else [parent]
    left_out = (_describe_forbidden(forbidden, major=major),) if forbidden else ()
    return VacuumPlan(steps=tuple(steps), left_out=left_out)


def _is_much_larger(tree: Sequence[Relation], stored_bytes: float) -> bool:
    return sum(relation.pages for relation in tree) * _PAGE_BYTES > max(_SMALL_BYTES, _MUCH_LARGER * stored_bytes)


def _is_touched(relation: Relation, before: Mapping[int, Relation]) -> bool:
    """Whether a table that was loaded took rows; of a partition that is told by what it was before."""
    if relation.oid == relation.root_oid:
        return True
    old = before.get(relation.oid)
    if old is not None:
        return (relation.pages, relation.inserted) != (old.pages, old.inserted)
    return relation.pages != relation.known_pages or relation.changes > 0


def _analyze_parent(root: Relation, tree: Sequence[Relation], *, major: int) -> VacuumStep | None:
    """Return the ANALYZE of a partitioned table, which autovacuum never does; None where it may not be.

    Before PostgreSQL 18 it analyzes every partition too, those that took no row as well.
    """
    is_only = major >= 18
    if not all(relation.may_vacuum for relation in ([root] if is_only else tree)):
        return None
    return VacuumStep(relation=root, vacuums=False, analyzes=True, is_only=is_only)


def _describe_forbidden(relations: Sequence[Relation], *, major: int) -> str:
    right = ", and lacks MAINTAIN" if major >= 17 else ""
    return f"not vacuumed: {list_names(relations)}; the role owns neither the table nor the database{right}"


def decide_checkpoint(
    *, asked: bool | None, stored_bytes: float, is_leased: bool, is_aurora: bool, may_checkpoint: bool
) -> CheckpointDecision:
    """Return whether a CHECKPOINT follows a load, and why.

    `asked` is --checkpoint or --no-checkpoint, None where neither was said; `is_leased`: the server's settings were
    changed for the load; `may_checkpoint` is what the catalogue says of the role's right, which is tried all the same
    where it was asked for: managed services have rules of their own.

    >>> decide_checkpoint(asked=None, stored_bytes=5e9, is_leased=True, is_aurora=False, may_checkpoint=True).is_due
    True
    """
    if asked is False:
        return CheckpointDecision(is_due=False, reason="--no-checkpoint")
    if asked is None and not is_leased:
        reason = "the server's settings are not changed, and it has its own checkpoint schedule"
        return CheckpointDecision(is_due=False, reason=reason)
    if asked is None and stored_bytes < _CHECKPOINT_LEAST_BYTES:
        reason = f"less than {format_bytes(_CHECKPOINT_LEAST_BYTES)} was loaded"
        return CheckpointDecision(is_due=False, reason=reason)
    if is_aurora:
        reason = "Amazon Aurora's storage has no checkpoints"
        return CheckpointDecision(is_due=False, reason=reason, is_refused=True)
    if not may_checkpoint and not asked:
        reason = "it needs superuser, or from PostgreSQL 15 the role pg_checkpoint"
        return CheckpointDecision(is_due=False, reason=reason, is_refused=True)
    reason = "--checkpoint" if asked else "the server's settings were changed so that checkpoints are rare"
    return CheckpointDecision(is_due=True, reason=reason)
