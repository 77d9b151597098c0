"""Plans what is parked of a load's tables: reads the catalogue, and lets parking.py decide."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.loading.plan.parking import ParkingFacts, decide_parking
from penstock.server.changes.parts import capture_tree
from penstock.server.table.tables import is_empty

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.loading.plan.parking import Decision
    from penstock.loading.plan.plan import TargetInput
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.server.changes.parts import ForeignKey, TableParts
    from penstock.server.connect.connection import Connection


def may_be_parked(target: TargetPlan) -> bool:
    """Whether a table has indexes or foreign keys that may be parked, according to its facts."""
    return target.facts is not None and (target.facts.has_indexes or bool(target.facts.references))


def plan_parking(plan: LoadPlan, connection: Connection) -> tuple[LoadPlan, dict[int, frozenset[int]]]:
    """Return the plan with what is parked of each table.

    The second result has, for each table's oid, the oids of the tables that it does not refer to while its foreign keys
    are parked. Raises TargetError, ServerError.
    """
    targets, freed = [], {}
    for target in plan.targets:
        parking = None
        if may_be_parked(target) and target.facts is not None:
            oid = target.facts.oid
            if (parts := capture_tree(connection, oid)) is not None:
                decision = decide(plan, target, parts, connection)
                parking = decision.plan
                own = [key for key in decision.foreign_keys if key.relation_oid in parts.tables]
                freed[oid] = _references(own) - _references(decision.staying)
        targets.append(replace(target, parking=parking))
    return replace(plan, targets=tuple(targets)), freed


def free_references(inputs: Iterable[TargetInput], freed: Mapping[int, frozenset[int]]) -> tuple[TargetInput, ...]:
    """Return the inputs of a plan without the references of parked foreign keys."""
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
    is_parked: bool = False,
) -> Decision:
    """Return what is parked of a table; `is_parked`: the load has already parked parts of it. Raises ServerError."""
    rules = plan.job.rules
    facts = ParkingFacts(
        indexes=rules.indexes,
        job=target.job,
        is_empty=True,
        size_bytes=plan.size_bytes,
        is_parked=is_parked,
        is_truncated=target.is_truncated_first,
        rejects=rules.on_error == "reject",
        tuning=plan.tuning,
    )
    if rules.indexes != "auto" or not decide_parking(parts, facts).is_parking:
        return decide_parking(parts, facts)
    # Read the table only if the decision depends on whether it is empty.
    is_fresh = facts.is_truncated or is_empty(connection, parts.table.oid)
    return decide_parking(parts, replace(facts, is_empty=is_fresh))
