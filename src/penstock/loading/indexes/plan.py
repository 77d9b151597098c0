"""Plans which indexes and keys of a load's tables are dropped: reads the catalogue, and lets decide.py decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.changes.tables.parts import ForeignKey, TableParts, capture_tree
from penstock.core.catalogue.tables import is_empty
from penstock.loading.indexes.decide import IndexDecision, IndexPlanFacts, decide_indexes

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection
    from penstock.loading.plan.plan import TargetInput
    from penstock.loading.values.plan import LoadPlan, TargetPlan


def plan_indexes(plan: LoadPlan, connection: Connection) -> tuple[LoadPlan, dict[int, frozenset[int]]]:
    """Return the plan with which indexes and keys of each table are dropped.

    The second result has, by each table's oid, the oids of the tables to which its dropped foreign keys refer. Raises
    TargetError, ServerError.
    """
    targets, freed = list(plan.targets), {}
    for number, target in enumerate(plan.targets):
        facts = target.facts
        if facts is None or not (facts.has_indexes or facts.references):
            continue
        if (parts := capture_tree(connection, facts.oid)) is not None:
            decision = decide(plan, target, parts, connection)
            # Advice after the load may name what --indexes rebuild would drop in addition.
            asked = decide_indexes(parts, replace(_gather(plan, target), indexes="rebuild")).plan.dropped
            dropped = {part.name for part in decision.plan.dropped}
            droppable = tuple(part.name for part in asked if part.name not in dropped)
            targets[number] = replace(target, indexes=replace(decision.plan, droppable=droppable))
            own = [key for key in decision.foreign_keys if key.relation_oid in parts.tables]
            freed[facts.oid] = _references(own) - _references(decision.staying)
    return replace(plan, targets=tuple(targets)), freed


def free_references(inputs: Iterable[TargetInput], freed: Mapping[int, frozenset[int]]) -> tuple[TargetInput, ...]:
    """Return the inputs of a plan without the references of dropped foreign keys."""
    return tuple(
        gathered
        if gathered.facts is None
        else replace(
            gathered,
            facts=replace(
                gathered.facts, references=gathered.facts.references - freed.get(gathered.facts.oid, frozenset())
            ),
        )
        for gathered in inputs
    )


def _references(keys: Iterable[ForeignKey]) -> frozenset[int]:
    return frozenset(key.references_oid for key in keys)


def decide(
    plan: LoadPlan,
    target: TargetPlan,
    parts: TableParts,
    connection: Connection,
    *,
    has_dropped: bool = False,
) -> IndexDecision:
    """Return which indexes and keys of a table are dropped. `has_dropped`: the load has already dropped some.

    Raises ServerError.
    """
    facts = replace(_gather(plan, target), has_dropped=has_dropped)
    if facts.indexes != "auto" or not decide_indexes(parts, facts).is_dropping:
        return decide_indexes(parts, facts)
    # Read the table only if the decision depends on whether it is empty.
    is_fresh = facts.is_truncated or is_empty(connection, parts.table.oid)
    return decide_indexes(parts, replace(facts, is_empty=is_fresh))


def _gather(plan: LoadPlan, target: TargetPlan) -> IndexPlanFacts:
    """Return the facts for the decision on a table's indexes, as if the table were empty."""
    rules = plan.job.rules
    return IndexPlanFacts(
        indexes=rules.indexes,
        job=target.job,
        is_empty=True,
        size_bytes=plan.size_bytes,
        is_truncated=target.is_truncated_first,
        rejects=rules.on_error == "reject",
        tuning=plan.tuning,
    )
