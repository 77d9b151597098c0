"""Plans which indexes and keys of a load's tables are dropped: reads the catalogue, and lets decide.py decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from penstock.changes.tables.parts import ForeignKey, TableParts, capture_tree
from penstock.core.catalogue.catalog import read_partition_line
from penstock.core.catalogue.tables import is_empty
from penstock.core.connect.connection import Connection
from penstock.core.tuning import LoadTuning
from penstock.core.values.job import LoadRules
from penstock.core.values.table import TableFacts
from penstock.loading.indexes.decide import IndexDecision, IndexPlanFacts, decide_indexes
from penstock.loading.values.plan import TargetPlan, stored_size


def plan_indexes(
    targets: Sequence[TargetPlan], rules: LoadRules, connection: Connection, *, tuning: LoadTuning
) -> list[TargetPlan]:
    """Return the targets, each with the decision which indexes and keys of its table are dropped.

    Foreign keys that are dropped are removed from the references in `TargetPlan.facts`. A partition that the load makes
    has none yet. Raises TargetError, ServerError.
    """
    gather = partial(
        gather_facts,
        rules=rules,
        size_bytes=stored_size(targets),
        tuning=tuning,
        synced=find_synced(targets, connection),
    )
    return [
        target
        if target.facts is None or target.is_partition or not (target.facts.has_indexes or target.facts.references)
        else _plan_table(target, target.facts, gather(target), connection)
        for target in targets
    ]


def find_synced(targets: Iterable[TargetPlan], connection: Connection) -> frozenset[int]:
    """Return the OIDs of the tables that a load syncs, of their partitions and of their parents. Raises ServerError."""
    oids = [target.facts.oid for target in targets if target.facts is not None and target.landing.deletes]
    return frozenset(read_partition_line(connection, oids)) if oids else frozenset()


def _plan_table(target: TargetPlan, table: TableFacts, facts: IndexPlanFacts, connection: Connection) -> TargetPlan:
    if (parts := capture_tree(connection, table.oid)) is None:
        return target
    decision = decide(parts, facts, connection)
    # Find what --indexes rebuild would drop in addition, for the advice after the load.
    asked = decide_indexes(parts, replace(facts, indexes="rebuild")).plan.dropped
    dropped = {part.name for part in decision.plan.dropped}
    droppable = tuple(part.name for part in asked if part.name not in dropped)
    own = [key for key in decision.foreign_keys if key.relation_oid in parts.tables]
    freed = _references(own) - _references(decision.staying)
    return replace(
        target,
        indexes=replace(decision.plan, droppable=droppable),
        facts=replace(table, references=table.references - freed),
    )


def _references(keys: Iterable[ForeignKey]) -> frozenset[int]:
    return frozenset(key.references_oid for key in keys)


def decide(parts: TableParts, facts: IndexPlanFacts, connection: Connection) -> IndexDecision:
    """Return which indexes and keys of a table are dropped.

    `facts` are given as if the table were empty. Whether it is empty is queried only if that can change the decision.
    Raises ServerError.
    """
    decision = decide_indexes(parts, facts)
    if facts.indexes != "auto" or not decision.is_dropping:
        return decision
    is_fresh = facts.is_truncated or is_empty(connection, parts.table.oid)
    return decide_indexes(parts, replace(facts, is_empty=is_fresh))


def gather_facts(
    target: TargetPlan,
    rules: LoadRules,
    *,
    size_bytes: int | None,
    tuning: LoadTuning,
    synced: frozenset[int],
    has_dropped: bool = False,
) -> IndexPlanFacts:
    """Return the facts for the decision on a table's indexes and keys, as if the table were empty.

    `size_bytes` is the size of all sources of the load as they are stored, None if it is not known. `synced` are the
    tables of `find_synced`. `has_dropped` says whether the load has already dropped indexes or keys of the table.
    """
    return IndexPlanFacts(
        indexes=rules.indexes,
        job=target.job,
        is_empty=True,
        size_bytes=size_bytes,
        has_dropped=has_dropped,
        is_truncated=target.is_truncated_first,
        rejects=rules.on_error == "reject",
        synced=synced,
        tuning=tuning,
    )
