"""A load's switches: triggers it was told to disable, autovacuum that is paused, at its tables alone.

What is switched off is written down, and committed, before; shape.py and `penstock repair` put it back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import TargetError
from penstock.loading.claim.prepared import tables_made
from penstock.loading.landing.context import with_locks
from penstock.server.changes import (
    delete_changes,
    find_others,
    hold_shape,
    read_changes,
    shape_lock,
    write_changes,
)
from penstock.server.changes.switches import (
    ON_DELETE,
    ON_INSERT,
    ON_UPDATE,
    find_autovacuum,
    find_triggers,
    switch_off,
)
from penstock.server.connect.errors import in_transaction
from penstock.server.table.catalog import find_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.loading.context import LoadTools
    from penstock.model.load.job import LoadRules
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.load.shape import Change
    from penstock.model.server.table import TableFacts
    from penstock.server.connect.connection import Connection
    from penstock.server.table.tables import CreatedTable


def turn_off(
    plan: LoadPlan,
    tools: LoadTools,
    connection: Connection,
    *,
    load_id: str,
    created: Sequence[CreatedTable],
    held: set[int],
    on_wait: Callable[[], None],
) -> None:
    """Switch off what the job asks for at the tables that get rows, those `created` for it too.

    The tables are added to `held`. Raises TargetError, ServerError.
    """
    made = {name: find_table(connection, table.name) for name, table in tables_made(plan, created).items()}
    for target in plan.targets:
        facts = target.facts or made.get(target.table)
        # A table that is replaced keeps its switches: the new one gets its triggers when it is loaded.
        if facts is None or facts.kind not in ("r", "p") or target.is_replaced:
            continue
        with shape_lock(connection, facts.oid, on_wait=on_wait, sleep=tools.sleep):
            changes = _find(plan.job.rules, target, facts, connection, load_id=load_id)
            held.add(facts.oid)
            _write_down(changes, tools, connection, load_id=load_id, target_oid=facts.oid)
            if not changes:
                continue
            tools.notice(f'disabling at "{facts.name}", to be restored after the load: {_describe(changes)}')
            with_locks(
                partial(switch_off, connection, changes),
                plan=plan,
                tools=tools,
                connection=connection,
                relations=sorted({change.relation_oid for change in changes}),
                what=f'disable triggers or autovacuum of "{facts.name}"',
            )


def _write_down(
    changes: list[Change], tools: LoadTools, connection: Connection, *, load_id: str, target_oid: int
) -> None:
    """Write down what is to be switched off, in a transaction of its own: a crash from here on leaves a record.

    A record of something that is on is of one who died before he switched it off, and it may have been set since.
    """
    schema = tools.ledger.schema
    switches = {(change.kind, change.relation_oid, change.name) for change in changes}
    with in_transaction(connection, "recording what is disabled"):
        known = read_changes(connection, schema, target_oid=target_oid) if changes else []
        # Who holds a table puts everything back there.
        if strangers := find_others(connection, known):
            names = ", ".join(f'"{name}"' for name in sorted(strangers))
            raise TargetError(
                f'nothing is disabled at "{known[0].target}": a load of {names} has changed it already',
                detail="Only that role can restore it.",
                hint=f"Wait for that load, or run penstock repair as {names}, as a member of it, or as a superuser.",
            )
        delete_changes(connection, schema, [c for c in known if (c.kind, c.relation_oid, c.name) in switches])
        hold_shape(connection, schema, load_id=load_id, target_oid=target_oid)
        write_changes(connection, schema, changes)


def _find(
    rules: LoadRules, target: TargetPlan, facts: TableFacts, connection: Connection, *, load_id: str
) -> list[Change]:
    changes: list[Change] = []
    if rules.triggers == "disable":
        events = ON_INSERT
        if target.job.mode == "upsert":
            events |= ON_UPDATE
        if target.job.transform is not None:
            # It may do anything.
            events |= ON_UPDATE | ON_DELETE
        changes += find_triggers(connection, facts, events=events, load_id=load_id)
    if rules.autovacuum == "pause":
        changes += find_autovacuum(connection, facts.oid, target_oid=facts.oid, target=facts.name, load_id=load_id)
    return changes


def _describe(changes: list[Change]) -> str:
    triggers = list(dict.fromkeys(change.name for change in changes if change.kind == "trigger"))
    words = [f"trigger {name}" for name in triggers]
    if len(triggers) < len({(change.kind, change.name) for change in changes}):
        words.append("autovacuum")
    return ", ".join(words)
