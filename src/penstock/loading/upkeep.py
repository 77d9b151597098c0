"""After a load: which tables are vacuumed and analyzed, and whether a checkpoint follows. Pure.

Why, and what it costs: docs/decisions/0015-after-the-load.md.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from penstock.model.upkeep import CheckpointDecision, VacuumPlan, VacuumStep
from penstock.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from penstock.model.upkeep import FilledTable, Relation

# A build of the server with another size is not worth a question: sizes here are orders of magnitude.
_PAGE_BYTES = 8192

# ANALYZE reads 300 rows for each of default_statistics_target (100), hardly two from one page of a large table.
_SAMPLE_PAGES = 30_000

# What a load has stored is mostly in memory still, and reading ten times as much doubles what the load took at the
# most (a load copies some 100 MB/s, VACUUM reads 1 GB/s). Below 64 MiB nobody notices.
_READ_FACTOR = 10
_READ_FLOOR_BYTES = 64 * MIB

# Below, a checkpoint comes by itself at the end of checkpoint_timeout and has little to write.
_CHECKPOINT_LEAST_BYTES = GIB

_NAMES_SHOWN = 3


def decide_vacuum(
    relations: Sequence[Relation],
    filled: Iterable[FilledTable],
    *,
    before: Mapping[int, Relation],
    stored_bytes: float,
    major: int,
    is_asked: bool,
    analyzed: Collection[int] = (),
) -> VacuumPlan:
    """Return what to vacuum and to analyze after a load.

    `relations` are the tables that were filled with their partitions, `before` the partitions by oid as they were when
    the load began, as far as that is known: those that took no rows are left out. `stored_bytes` is what the load has
    copied: where nobody asked for it (`is_asked`), nothing is read that is out of proportion to that. Tables in
    `analyzed` have statistics of just now.
    """
    limit_pages = None if is_asked else max(_READ_FLOOR_BYTES, _READ_FACTOR * stored_bytes) / _PAGE_BYTES
    wanted = {table.oid for table in filled}
    steps: list[VacuumStep] = []
    forbidden: list[Relation] = []
    too_large: list[Relation] = []
    for root_oid, group in groupby(relations, key=lambda relation: relation.root_oid):
        if root_oid not in wanted:
            continue
        tree = list(group)
        budget = _Budget(limit_pages)
        touched = [relation for relation in tree if relation.kind == "r" and _is_touched(relation, before)]
        forbidden += [relation for relation in touched if not relation.may_vacuum]
        root = next((relation for relation in tree if relation.oid == root_oid and relation.kind == "p"), None)
        parent = None if root is None else _analyze_parent(root, tree, major=major, budget=budget)
        has_all = parent is not None and not parent.is_only
        for relation in touched:
            if not relation.may_vacuum:
                continue
            vacuums = budget.allows_vacuum(relation)
            analyzes = not has_all and relation.oid not in analyzed and budget.allows_sample(relation)
            if not vacuums:
                too_large.append(relation)
            if vacuums or analyzes:
                steps.append(VacuumStep(relation=relation, vacuums=vacuums, analyzes=analyzes))
        steps += [] if parent is None else [parent]
    left_out = []
    if forbidden:
        left_out.append(_describe_forbidden(forbidden, major=major))
    if too_large:
        left_out.append(_describe_too_large(too_large, stored_bytes=stored_bytes))
    return VacuumPlan(steps=tuple(steps), left_out=tuple(left_out))


class _Budget:
    """What may be read of one table with all its partitions, in pages; None: everything."""

    def __init__(self, limit_pages: float | None) -> None:
        self._limit_pages = limit_pages
        self._vacuumed_pages = 0
        self._sampled_pages = 0

    def allows_vacuum(self, relation: Relation) -> bool:
        """Return whether a table may be vacuumed too, and count it if so."""
        pages = max(0, relation.pages - relation.visible_pages)
        if self._limit_pages is not None and self._vacuumed_pages + pages > self._limit_pages:
            return False
        self._vacuumed_pages += pages
        return True

    def allows_sample(self, *relations: Relation) -> bool:
        """Return whether samples of these may be read too, and count them if so."""
        pages = sum(min(relation.pages, _SAMPLE_PAGES) for relation in relations)
        if self._limit_pages is not None and self._sampled_pages + pages > self._limit_pages:
            return False
        self._sampled_pages += pages
        return True


def _is_touched(relation: Relation, before: Mapping[int, Relation]) -> bool:
    """Whether a table that was loaded took rows; of a partition that is told by what it was before."""
    if relation.oid == relation.root_oid:
        return True
    old = before.get(relation.oid)
    if old is not None:
        return (relation.pages, relation.inserted) != (old.pages, old.inserted)
    return relation.pages != relation.known_pages or relation.changes > 0


def _analyze_parent(root: Relation, tree: Sequence[Relation], *, major: int, budget: _Budget) -> VacuumStep | None:
    """Return the ANALYZE of a partitioned table, which autovacuum never does; None where it may not be, or costs much.

    Before PostgreSQL 18 it analyzes every partition too, those that took no row as well.
    """
    is_only = major >= 18
    leaves = [relation for relation in tree if relation.kind == "r"]
    needed = [root] if is_only else tree
    if not all(relation.may_vacuum for relation in needed) or (not is_only and not budget.allows_sample(*leaves)):
        return None
    return VacuumStep(relation=root, vacuums=False, analyzes=True, is_only=is_only)


def _describe_forbidden(relations: Sequence[Relation], *, major: int) -> str:
    right = ", and lacks MAINTAIN" if major >= 17 else ""
    return f"not vacuumed: {_list_names(relations)}; the role owns neither the table nor the database{right}"


def _describe_too_large(relations: Sequence[Relation], *, stored_bytes: float) -> str:
    pages = sum(max(0, relation.pages - relation.visible_pages) for relation in relations)
    return (
        f"not vacuumed: {_list_names(relations)}; {format_bytes(pages * _PAGE_BYTES)} would be read for"
        f" {format_bytes(stored_bytes)} loaded (--vacuum does it all the same)"
    )


def _list_names(relations: Sequence[Relation]) -> str:
    shown = ", ".join(f'"{relation}"' for relation in relations[:_NAMES_SHOWN])
    more = len(relations) - _NAMES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


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
        reason = "the server's settings are its own, and its checkpoints come by its own schedule"
        return CheckpointDecision(is_due=False, reason=reason)
    if asked is None and stored_bytes < _CHECKPOINT_LEAST_BYTES:
        reason = f"less than {format_bytes(_CHECKPOINT_LEAST_BYTES)} was loaded"
        return CheckpointDecision(is_due=False, reason=reason)
    if is_aurora:
        reason = "Amazon Aurora's storage keeps itself up from the log, and has no checkpoints"
        return CheckpointDecision(is_due=False, reason=reason, is_refused=True)
    if not may_checkpoint and not asked:
        reason = "it needs superuser, or from PostgreSQL 15 the role pg_checkpoint"
        return CheckpointDecision(is_due=False, reason=reason, is_refused=True)
    reason = "--checkpoint" if asked else "the server's settings were changed so that checkpoints are seldom"
    return CheckpointDecision(is_due=True, reason=reason)
