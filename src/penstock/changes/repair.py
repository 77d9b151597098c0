"""Restores what dead loads have left changed, wherever it is written down: on any host, whoever made the change.

What a load at work wants changed stays. Each thing is restored as the role that changed it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.changes.journal import restore
from penstock.changes.kinds import kind_of
from penstock.errors import PenstockError, TargetError
from penstock.model.load.shape import RepairStep
from penstock.server.changes.holds import find_other_holds, read_holds
from penstock.server.changes.kind import TableSwitch
from penstock.server.changes.look import copied_record
from penstock.server.changes.missing import group_attached, read_failed
from penstock.server.changes.parts import check_foreign_key_record, is_foreign_key
from penstock.server.changes.rebuild import describe_again, drop_records
from penstock.server.changes.records import read_changes
from penstock.server.ledger.schema import has_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.changes.context import Context, Report, Restored
    from penstock.model.load.outcome import StepProgress
    from penstock.model.load.shape import Change, RepairAction
    from penstock.server.connect.connection import Connection


_GIVEN_UP = "it will not be rebuilt; to create it by hand: "


class Store(Protocol):
    """A place where changes are written down: the ledger for tables, a database of the cluster or tags for settings."""

    def plan(self) -> list[RepairStep]:
        """Return what `restore` would do, a step for each record; changes nothing. Raises PenstockError."""

    def restore(self, done: Restored) -> None:
        """Restore everything that no load at work wants changed; errors that are met go to `done`."""


def plan_repair(stores: Sequence[Store]) -> list[RepairStep]:
    """Return what `repair` would do; changes nothing. Raises PenstockError."""
    return [step for store in stores for step in store.plan()]


def repair(stores: Sequence[Store], done: Restored) -> None:
    """Restore what each store has that no load at work wants changed, the last one first: tables may take hours.

    Errors are in `done`. Raises ServerError where the server goes away.
    """
    for store in reversed(stores):
        store.restore(done)


class TableStore:
    """The ledger's records of changes at tables."""

    def __init__(self, context: Context) -> None:
        self._context = replace(context, report=_telling_once(context.notice))

    def plan(self) -> list[RepairStep]:
        """Return a step for each record; what is attached to a part of a partitioned table is counted with it."""
        connection, schema = self._context.connection, self._context.schema
        if not has_ledger(connection, schema):
            return []
        holders = {
            hold.target_oid: f"load {hold.load_id} is running (backend {hold.pid}), and rebuilds it"
            for hold in read_holds(connection, schema)
            if hold.pid is not None
        }
        changes = read_changes(connection, schema)
        found = {(each.target_oid, each.number): _decide_step(each, holders, connection) for each in changes}

        def is_alike(one: Change, other: Change) -> bool:
            step = found[one.target_oid, one.number]
            return step == found[other.target_oid, other.number] and step[0] != "refuse"

        return [
            replace(_make_step(top, *found[top.target_oid, top.number]), attached=len(attached))
            for top, *attached in group_attached(changes, is_alike=is_alike)
        ]

    def restore(self, done: Restored) -> None:
        """Restore all tables. Raises ServerError."""
        connection, schema = self._context.connection, self._context.schema
        if has_ledger(connection, schema):
            found = restore(self._context, {change.target_oid for change in read_changes(connection, schema)})
            done.rebuilt += found.rebuilt
            done.held += found.held
            done.errors += found.errors + found.copied


def forget_missing(context: Context, names: Sequence[str], *, only_planned: bool) -> list[RepairStep]:
    """Give up for good what tables lack since a rebuild failed: its records go, and nothing of the tables changes.

    `names` are their own, with the table's before it where two have one. Raises TargetError for what is not missing, is
    another role's to restore, or of a table that is being loaded; ServerError.
    """
    connection, schema = context.connection, context.schema
    chosen = _choose_missing(names, read_failed(connection, schema))
    with ExitStack() as locks:
        for oid in sorted({change.target_oid for change in chosen}):
            locks.enter_context(context.lock(oid))
            if holds := find_other_holds(connection, schema, oid):
                raise TargetError(
                    f"load {holds[0].load_id} is running (backend {holds[0].pid}), and rebuilds what is missing",
                    hint="Run it again when that load has ended.",
                )
        # Under the locks: what was restored by now is not missing.
        found = [family for missing in read_failed(connection, schema) for family in group_attached(missing)]
        families = [family for family in found if family[0] in chosen]
        steps = [_make_step(top, "forget", _GIVEN_UP + describe_again(connection, top)) for top, *_ in families]
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


def _telling_once(tell: Callable[[str], None]) -> Report:
    told = ""

    def report(activity: str, steps: tuple[StepProgress, ...] = ()) -> None:  # noqa: ARG001 (a line has no bars)
        nonlocal told
        if activity != told:
            told = activity
            tell(activity)

    return report


def _make_step(change: Change, action: RepairAction, reason: str) -> RepairStep:
    return RepairStep(
        table=change.relation, kind=change.kind, name=change.name, owner=change.owner, action=action, reason=reason
    )


def _decide_step(change: Change, holders: Mapping[int, str], connection: Connection) -> tuple[RepairAction, str]:
    if change.is_copied:
        return "refuse", copied_record(change).message
    tables = [change.target_oid]
    try:
        if is_foreign_key(change):
            check_foreign_key_record(change)
            tables += change.relations
        for oid in filter(holders.get, tables):
            return "wait", holders[oid]
        kind = kind_of(change)
        state = kind.look(connection, change)
        if isinstance(kind, TableSwitch):
            was_changed = f"load {change.load_id} has disabled it"
            return ("restore", was_changed) if state == "absent" else ("forget", "it was dropped or enabled")
    except PenstockError as error:
        return "refuse", error.message
    steps: dict[str, tuple[RepairAction, str]] = {
        "gone": ("forget", "the table does not exist any more"),
        "there": ("forget", "it exists as before"),
        "begun": ("finish", change.failure or "its rebuild was begun"),
        "made": ("finish", "it exists, and is not attached to the partitioned table's"),
        "absent": ("rebuild", change.failure or f"load {change.load_id} has dropped it"),
    }
    return steps[state]
