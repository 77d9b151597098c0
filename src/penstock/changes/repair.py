"""Restores what ended loads and commands have left changed, from any host and in every store.

Changes that a running load needs are not restored. Each change is restored as the role that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.changes.context import Context, Report, Restored
from penstock.changes.journal import restore
from penstock.changes.tables.look import copied_record, group_attached, read_failed
from penstock.changes.tables.parts import check_foreign_key_record, is_foreign_key
from penstock.changes.tables.rebuild import compose_rebuild, drop_records
from penstock.core.errors import PenstockError, TargetError
from penstock.core.values.change import Change, Hold, RepairAction, RepairStep

if TYPE_CHECKING:
    from penstock.core.values.accounts import StepProgress

    _Decision = tuple[RepairAction, str]


_GIVEN_UP = "it will not be rebuilt; to create it by hand: "


def plan_repair(contexts: Sequence[Context]) -> list[RepairStep]:
    """Return what `repair` would do, a step for each record, and change nothing. Raises PenstockError.

    An index or key of a partition that is attached to a parent index or key has no step of its own. The parent's step
    counts it.
    """
    steps = []
    for context in contexts:
        if not context.store.exists():
            continue
        changes = list(filter(context.concerns, context.store.read_changes()))
        holds = [hold for hold in context.store.read_holds() if not context.is_over(hold)]
        found = {(each.target_oid, each.number): _decide_step(context, each, holds) for each in changes}

        def is_alike(one: Change, other: Change, found: dict[tuple[int, int], _Decision] = found) -> bool:
            step = found[one.target_oid, one.number]
            return step == found[other.target_oid, other.number] and step[0] != "refuse"

        steps += [
            replace(_make_step(top, *found[top.target_oid, top.number]), attached=len(attached))
            for top, *attached in group_attached(changes, is_alike=is_alike)
        ]
    return steps


def repair(context: Context, done: Restored) -> None:
    """Restore the changes of a store that no running load needs. Raises ServerError if the connection is lost."""
    context = replace(context, report=_reporting_once(context.notice))
    written = list(filter(context.concerns, context.store.read_changes())) if context.store.exists() else []
    found = restore(context, {change.target_oid for change in written}) if written else Restored()
    done.rebuilt += found.rebuilt
    done.settings += found.settings
    done.temp_place = found.temp_place or done.temp_place
    done.held += found.held
    done.errors += found.errors + found.copied


def forget_missing(context: Context, names: Sequence[str], *, only_planned: bool) -> list[RepairStep]:
    """Remove the records of indexes and keys that are missing because a rebuild failed. The tables are not changed.

    `names` are the names of these indexes and keys, as TABLE.NAME if two tables lack the same name. Raises TargetError
    if an index or key is not missing, if only another role may restore it, or if its table is being loaded. Raises
    ServerError.
    """
    connection, schema = context.connection, context.schema
    chosen = _choose_missing(names, read_failed(connection, schema))
    with ExitStack() as locks:
        for oid in sorted({change.target_oid for change in chosen}):
            locks.enter_context(context.lock(oid))
            if holds := [hold for hold in context.store.read_holds(oid) if hold.is_alive]:
                raise TargetError(
                    f"load {holds[0].holder_id} is running (backend {holds[0].pid}), and rebuilds what is missing",
                    hint="Run it again when that load has ended.",
                )
        # Read the records again under the locks, because another process may have restored something.
        found = [family for missing in read_failed(connection, schema) for family in group_attached(missing)]
        families = [family for family in found if family[0] in chosen]
        steps = [_make_step(top, "forget", _GIVEN_UP + compose_rebuild(connection, top)) for top, *_ in families]
        if not only_planned:
            drop_records(connection, schema, [change for family in families for change in family])
    return steps


def _choose_missing(names: Sequence[str], failed: Sequence[Sequence[Change]]) -> list[Change]:
    missing = [family[0] for each in failed for family in group_attached(each)]
    chosen = []
    for name in names:
        found = [change for change in missing if name in (change.name, f"{change.relation}.{change.name}")]
        if len(found) != 1:
            listed = ", ".join(f'"{change.relation}.{change.name}"' for change in missing)
            raise TargetError(
                f'{"several tables lack" if found else "no table lacks"} "{name}" because a rebuild failed',
                detail=f"Missing are {listed}." if missing else "Nothing is missing.",
            )
        chosen += found
    return chosen


def _reporting_once(notice: Callable[[str], None]) -> Report:
    last = ""

    def report(activity: str, steps: tuple[StepProgress, ...] = ()) -> None:  # noqa: ARG001 (no progress bars)
        nonlocal last
        if activity != last:
            last = activity
            notice(activity)

    return report


def _make_step(change: Change, action: RepairAction, reason: str) -> RepairStep:
    return RepairStep(
        table=change.relation, kind=change.kind, name=change.name, owner=change.owner, action=action, reason=reason
    )


def _decide_step(context: Context, change: Change, holds: Sequence[Hold]) -> _Decision:
    if change.is_copied:
        return "refuse", copied_record(change).message
    try:
        is_key = is_foreign_key(change)
        if is_key:
            check_foreign_key_record(change)
        for hold in holds:
            if hold.wants(change) or (is_key and hold.target_oid in change.relations):
                return _decide_held(context, hold)
        return context.kind_of(change).describe(context, change)
    except PenstockError as error:
        return "refuse", error.message


def _decide_held(context: Context, hold: Hold) -> _Decision:
    if context.server is not None and not hold.is_of(context.server):
        return "refuse", f"it was changed on {hold.server}: run penstock settings restore"
    if hold.pid is not None:
        who = hold.reason or f"load {hold.holder_id}"
        return "wait", f"{who} is running (backend {hold.pid}), and restores it"
    if hold.until is not None:
        return "wait", f"its lease lasts until {hold.until:%Y-%m-%d %H:%M:%S} or penstock settings restore"
    return "keep", f"it stays until penstock {hold.reason}"
