"""Decides in which order the targets of a load are stored, in how many transactions, by how many sessions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted
from penstock.core.tuning import BatchPlan, LoadTuning
from penstock.core.values.job import LoadRules
from penstock.core.values.notice import Notice
from penstock.core.values.server import ServerFacts
from penstock.core.values.source import SourceObject
from penstock.core.values.table import TableFacts, TableName
from penstock.loading.pace import plan_sessions
from penstock.loading.plan.modes import refuse_shared_tables
from penstock.loading.values.plan import SessionPlan, TargetPlan, stored_size

if TYPE_CHECKING:
    from penstock.rds.values import InstanceClass


def stage_together(targets: Sequence[TargetPlan], *, is_atomic: bool) -> list[TargetPlan]:
    """Return the targets. If the load is atomic and one of them is staged or replaced, stage the others too.

    All rows then appear in the load's last transaction.
    """
    if not is_atomic or all(target.fills_table for target in targets):
        return list(targets)
    return [target.staged() for target in targets]


@slotted
class TargetOrder:
    """In which order the targets of a load get their rows, and whether in one transaction."""

    # The targets. Those whose foreign keys refer to a staged table are staged too.
    targets: tuple[TargetPlan, ...]
    # Whether every source can be read again, so that transient faults can be retried and an interrupted load resumed.
    is_repeatable: bool
    # Whether one session stores all rows in one transaction.
    is_single: bool
    # Whether objects are read in the order of `ranks`, instead of the largest first.
    is_in_job_order: bool
    # Each target's turn: referenced tables first, otherwise the order of the job.
    ranks: tuple[int, ...]
    # Whether foreign keys refer to each other in a circle, so that all rows are committed in one transaction.
    defers_keys: bool
    notices: tuple[Notice, ...]


def order_targets(targets: Sequence[TargetPlan], rules: LoadRules) -> TargetOrder:
    """Return in which order the targets get their rows. Foreign keys that the load drops are not considered.

    A target whose foreign keys refer to a staged table is staged too. Raises UsageError or TargetError if two targets
    cannot be loaded together.
    """
    targets = _follow_staged(targets)
    _refuse_double_creation(targets)
    refuse_shared_tables(targets)
    depends = _rows_depend_on_each_other(targets)
    ranks, circles = rank_tables([target.facts for target in targets])
    is_repeatable = not any(_is_read_once(source) for target in targets for source in target.objects)
    if rules.yields_for is not None and not is_repeatable:
        raise UsageError(
            f"{rules.yields_for} cannot be used with a pipe",
            detail="One transaction has all rows of a pipe, and cannot pause.",
            hint="Write it to a file first, or use --spool.",
        )
    return TargetOrder(
        targets=tuple(targets),
        is_repeatable=is_repeatable,
        # A load with a pipe cannot be resumed, because a pipe cannot be read again. So it is loaded as a whole or not
        # at all.
        is_single=not is_repeatable or (rules.atomic and any(target.fills_table for target in targets)),
        is_in_job_order=depends,
        ranks=ranks,
        defers_keys=bool(circles) and rules.atomic,
        notices=(*((_DEPENDS_NOTICE,) if depends else ()), *circles),
    )


def choose_sessions(
    order: TargetOrder,
    asked: int | None,
    server: ServerFacts,
    *,
    cpu_count: int | None,
    instance_class: InstanceClass | None,
) -> SessionPlan:
    """Return how many sessions send the rows of a load, and why.

    `asked` is the number that the user gave, None for `auto`. `cpu_count` is the number of the server's CPUs, None if
    it is not known. On RDS, the vCPUs of `instance_class` are used instead, if that is known.
    """
    vcpu_count = None if instance_class is None else instance_class.vcpu_count
    sessions = plan_sessions(
        asked=1 if order.is_in_job_order or order.is_single else asked,
        cpu_count=cpu_count if vcpu_count is None else vcpu_count,
        free_connections=server.free_connections,
        size_bytes=stored_size(order.targets),
        instance_class=None if vcpu_count is None or instance_class is None else instance_class.name,
    )
    return replace(sessions, reason="all rows are loaded in one transaction") if order.is_single else sessions


def choose_batch(order: TargetOrder, tuning: LoadTuning) -> BatchPlan:
    """Return the batches of a load: those of `tuning`, or one batch if all rows are loaded in one transaction."""
    return replace(tuning.batch, limit_bytes=None, duration_s=None) if order.is_single else tuning.batch


def _is_read_once(source: SourceObject) -> bool:
    return source.is_pipe and not source.is_spooled


_DEPENDS_NOTICE = Notice(
    code="references",
    message="a foreign key refers to a table of this load: one session, referenced tables first",
    hint="To use all sessions, drop the key before the load and add it after.",
)


def rank_tables(facts: Sequence[TableFacts | None]) -> tuple[tuple[int, ...], tuple[Notice, ...]]:
    """Return the rank of each table, from 0, and a warning for each circle of foreign keys.

    A referenced table has a lower rank than the tables that refer to it. Otherwise tables keep the order of `facts`, in
    which None stands for a table that does not exist yet.
    """
    tables = {each.oid: each for each in facts if each is not None}
    graph = {
        oid: [other for other in tables if other in facts.references and other != oid] for oid, facts in tables.items()
    }
    notices = []
    while True:
        try:
            order = list(TopologicalSorter(graph).static_order())
            break
        except CycleError as error:
            circle = dict.fromkeys(error.args[1])
            notices.append(_notice_circle([str(tables[oid].name) for oid in circle]))
            # Ignore the foreign keys of this circle. The other foreign keys still decide the order.
            for oid in circle:
                graph[oid] = [other for other in graph[oid] if other not in circle]
    ranked = sorted(
        range(len(facts)),
        key=lambda number: -1 if (each := facts[number]) is None else order.index(each.oid),
    )
    return tuple(ranked.index(number) for number in range(len(facts))), tuple(notices)


def _notice_circle(names: Sequence[str]) -> Notice:
    listed = ", ".join(f'"{name}"' for name in names)
    return Notice(
        code="references",
        message=f"foreign keys refer to each other in a circle: {listed}; no order of these tables keeps every key",
        hint="Have one DEFERRABLE (with --mode append INITIALLY DEFERRED, too) and use --atomic, without --on-error "
        "reject, which checks each table by itself; or drop it before the load and add it after.",
    )


def _rows_depend_on_each_other(targets: Sequence[TargetPlan]) -> bool:
    """Return whether COPY fills a target that has a foreign key to a target of this load, including itself."""
    loaded = {target.facts.oid for target in targets if target.facts is not None}
    return any(
        target.fills_table and target.facts is not None and not loaded.isdisjoint(target.facts.references)
        for target in targets
    )


def _follow_staged(targets: Sequence[TargetPlan]) -> Sequence[TargetPlan]:
    """Stage each target with a foreign key to a staged table, because its rows must be stored after that table's."""
    staged = {each.facts.oid: each.table for each in targets if each.is_staged and each.facts is not None}
    following = [replace(target, follows=_find_followed(target, staged)) for target in targets]
    targets = [each.staged() if each.follows else each for each in following]
    # Repeat this, because other tables may have foreign keys to the tables that were just staged.
    return targets if targets == following else _follow_staged(targets)


def _find_followed(target: TargetPlan, staged: Mapping[int, TableName]) -> tuple[TableName, ...]:
    facts = target.facts
    if facts is None:
        return ()
    return tuple(name for oid, name in staged.items() if oid in facts.references and oid != facts.oid)


def _refuse_double_creation(targets: Sequence[TargetPlan]) -> None:
    """Raise UsageError if two targets would create the same table with different columns."""
    created: dict[TableName, tuple[object, ...]] = {}
    for target in targets:
        if target.create_columns is None:
            continue
        columns = (target.create_columns, target.create_types, target.created_key)
        if created.setdefault(target.table, columns) != columns:
            raise UsageError(f'table "{target.table}" would be created twice with different columns')
