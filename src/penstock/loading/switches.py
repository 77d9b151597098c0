"""A load's switches: triggers it was told to disable, autovacuum it was told to pause, at its tables alone.

What is switched off is written down, and committed, before; shape.py and `penstock repair` put it back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.loading.landing import with_locks
from penstock.server.shape import hold_shape, shape_lock, write_changes
from penstock.server.shape.switches import (
    ON_DELETE,
    ON_INSERT,
    ON_UPDATE,
    find_autovacuum,
    find_triggers,
    switch_off,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.loading.tools import LoadTools
    from penstock.model.job import LoadRules
    from penstock.model.plan import LoadPlan, TargetPlan
    from penstock.model.shape import Change
    from penstock.server.connection import Connection


def turn_off(
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    *,
    load_id: str,
    held: set[int],
    on_wait: Callable[[], None],
) -> None:
    """Switch off what the job asks for at the tables that get rows; the tables are added to `held`.

    Raises TargetError, ServerError.
    """
    schema = tools.ledger.schema
    for target in plan.targets:
        facts = target.facts
        # A table that is replaced keeps its switches: the new one gets its triggers when it is loaded.
        if facts is None or facts.kind not in ("r", "p") or target.landing == "replacement":
            continue
        with shape_lock(connection, facts.oid, on_wait=on_wait, sleep=tools.sleep):
            changes = _find(plan.job.rules, target, connection, load_id=load_id)
            # Before anything is switched off, in a transaction of its own: a crash from here on leaves a record.
            with connection.transaction():
                hold_shape(connection, schema, load_id=load_id, target_oid=facts.oid)
                write_changes(connection, schema, changes)
            held.add(facts.oid)
            if not changes:
                continue
            tools.notice(f'switching off at "{facts.name}", to be put back after the load: {_describe(changes)}')
            with_locks(
                partial(switch_off, connection, changes),
                plan=plan,
                tools=tools,
                connection=connection,
                relations=sorted({change.relation_oid for change in changes}),
                what=f'switch off triggers or autovacuum of "{facts.name}"',
            )


def _find(rules: LoadRules, target: TargetPlan, connection: Connection, *, load_id: str) -> list[Change]:
    assert target.facts is not None
    changes: list[Change] = []
    if rules.triggers == "disable":
        events = ON_INSERT
        if target.job.mode == "upsert":
            events |= ON_UPDATE
        if target.job.transform is not None:
            # It may do anything.
            events |= ON_UPDATE | ON_DELETE
        changes += find_triggers(connection, target.facts, events=events, load_id=load_id)
    if rules.autovacuum == "pause":
        changes += find_autovacuum(connection, target.facts, load_id=load_id)
    return changes


def _describe(changes: list[Change]) -> str:
    triggers = list(dict.fromkeys(change.name for change in changes if change.kind == "trigger"))
    words = [f"trigger {name}" for name in triggers]
    if len(triggers) < len({(change.kind, change.name) for change in changes}):
        words.append("autovacuum")
    return ", ".join(words)
