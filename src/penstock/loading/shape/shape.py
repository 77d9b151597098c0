"""A load's part in the shape of its tables: what is parked before its first row, and put back after its last.

What is parked is written down, and committed, before anything is taken away; a table is touched only under its lock,
when it still is what the plan was made for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, ServerError, TargetError
from penstock.loading.landing.context import with_locks
from penstock.loading.plan.parking import Decision
from penstock.loading.plan.shape_plan import decide, is_truncated
from penstock.loading.shape.rebuild import DEFAULT_PATIENCE_S, Rebuilder
from penstock.loading.shape.switches import turn_off
from penstock.model.load.shape import ParkingPlan
from penstock.server.changes import (
    find_changed,
    find_other_holds,
    find_others,
    hold_shape,
    read_changes,
    release_shape,
    shape_lock,
    write_changes,
)
from penstock.server.changes.holds import find_holds_of
from penstock.server.changes.missing import read_missing, refuse_missing
from penstock.server.changes.park import lock_table, make_changes, park
from penstock.server.changes.parts import capture_tree
from penstock.server.changes.switches import SWITCHES
from penstock.server.connect.errors import in_transaction
from penstock.server.ledger.locks import find_lock_holder, try_lock
from penstock.server.table.tables import is_empty

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.loading.claim.prepared import NothingToDo, PreparedLoad
    from penstock.loading.context import LoadTools, Report
    from penstock.loading.shape.rebuild import PutBack
    from penstock.model.load.plan import LoadPlan, TargetPlan
    from penstock.model.load.shape import Change, Rebuilt
    from penstock.server.changes.parts import ForeignKey, TableParts
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)

# The load's own sessions are ending when it looks whether it may put things back.
_LOCK_PATIENCE_S = 20.0
_LOCK_LOOK_S = 0.1

_REPAIR = "run penstock repair"

_LOCK_NOT_AVAILABLE = "55P03"


def put_back_replaced(oids: Sequence[int], tools: LoadTools, connection: Connection) -> None:
    """Put back what loads have left changed at tables that are to be replaced: the new ones get what is there then.

    Raises TargetError where a load at work wants it changed, or it cannot be put back, ServerError.
    """
    changed = find_changed(connection, tools.ledger.schema, oids)
    if not changed:
        return
    done = Rebuilder(tools, connection, is_local=tools.guard is not None).put_back(changed)
    _refuse_left(done, oids, tools, connection)
    if done.held:
        raise TargetError(
            "a table cannot be replaced while its indexes, keys or triggers are dropped or disabled for another load",
            detail="\n".join(dict.fromkeys(done.held)),
            hint="Run the load again when that one has ended.",
        )


def _refuse_left(done: PutBack, oids: Collection[int], tools: LoadTools, connection: Connection) -> None:
    """Raise TargetError if what loads that are gone have left could not be restored; ServerError."""
    for error in done.copied:
        tools.warnings.warn("parked-left", error.message)
    if not done.errors:
        return
    schema, first = tools.ledger.schema, done.errors[0]
    refuse_missing(connection, schema, sorted(oids))
    if any(read_missing(connection, schema, oid) for oid in oids):
        raise TargetError(
            f"changes that another load left were not restored: {first.message}",
            detail=first.detail,
            hint="Run penstock repair: nothing is loaded into the table until they are restored.",
        ) from first
    message = f"the record of changes that another load left was not removed ({first.message}): run penstock repair"
    tools.warnings.warn("parked-left", message)


class LoadShape:
    """What one load parks and puts back."""

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self._plan = plan
        self._tools = tools
        self._schema = tools.ledger.schema
        self._held: set[int] = set()
        # A rebuild, which comes behind the last row.
        self.has_failed = False

    # ---------------------------------------------------------------- before the first row

    def prepare(self, prepared: PreparedLoad, connection: Connection) -> None:
        """Park what is to be parked of the tables that get rows; put back first what another load has left parked.

        Raises TargetError, ServerError.
        """
        load_id = prepared.claim.load_id
        targets = {
            target.facts.oid: target
            for target in self._plan.targets
            if target.facts is not None and not target.is_replaced
        }
        left = {oid for oid, loads in prepared.changed_by.items() if set(loads) - {load_id}}
        if left:
            done = self._rebuilder(connection).put_back(left)
            self._tell(done)
            _refuse_left(done, left, self._tools, connection)
        parked = {
            oid: target
            for oid, target in targets.items()
            if (target.parking is not None and target.parking.parked) or oid in prepared.changed_by
        }
        for oid, target in parked.items():
            self._prepare(oid, target, load_id, connection, has_rows_to_come=bool(prepared.work))
        rules = self._plan.job.rules
        # What is staged fires triggers at the end alone.
        if (prepared.work or prepared.landings) and (rules.triggers != "keep" or rules.autovacuum == "pause"):
            turn_off(
                self._plan,
                self._tools,
                connection,
                load_id=load_id,
                created=prepared.created,
                held=self._held,
                on_wait=self._tell_of_wait,
            )

    def _prepare(
        self,
        oid: int,
        target: TargetPlan,
        load_id: str,
        connection: Connection,
        *,
        has_rows_to_come: bool,
    ) -> None:
        with shape_lock(connection, oid, on_wait=self._tell_of_wait, sleep=self._tools.sleep):
            everything = read_changes(connection, self._schema)
            written = [change for change in everything if not change.is_copied]
            copied = {(each.relation_oid, each.name) for each in everything if each.is_copied}
            before = [change for change in written if change.target_oid == oid]
            # A trigger may have an index's name.
            known = {(each.relation_oid, each.name): each for each in written if each.kind not in SWITCHES}
            others = find_other_holds(connection, self._schema, oid, but_load_id=load_id)
            ours = [change for change in before if change.load_id == load_id]
            is_parked = any(change.kind not in SWITCHES for change in ours)
            parts = capture_tree(connection, oid)
            if parts is None:
                raise TargetError(f'table "{target.table}" does not exist any more')
            if has_rows_to_come:
                decision = decide(self._plan, target, parts, connection, is_parked=is_parked)
                self._check_relied_on(target, decision, known)
            else:
                # What was rebuilt before a fault stays; only the rest is left to do.
                decision = Decision(plan=ParkingPlan(reason="every row is loaded"))
            new = make_changes(parts, indexes=decision.indexes, foreign_keys=decision.foreign_keys, load_id=load_id)
            # One whose rebuild was begun has a record, which knows how it was before.
            changes = [known.get((change.relation_oid, change.name), change) for change in new]
            if not ours and (strangers := find_others(connection, [*before, *changes])):
                # Only as them could it be put back.
                names = ", ".join(f'"{name}"' for name in sorted(strangers))
                self._tools.notice(f'indexes of "{target.table}" are kept: {names} has already dropped some there')
                return
            if copied & {(change.relation_oid, change.name) for change in changes}:
                self._tools.notice(f'indexes of "{target.table}" are kept: see penstock repair --plan')
                return
            if not changes and not (before and (others or ours)):
                return
            # Before anything is taken away, in a transaction of its own; a crash from here on leaves a record.
            with in_transaction(connection, "recording the indexes to drop"):
                hold_shape(connection, self._schema, load_id=load_id, target_oid=oid)
                write_changes(connection, self._schema, [change for change in changes if not change.number])
            self._held.add(oid)
            if changes:
                self._park(target, parts, decision, changes, connection, is_parked=is_parked)

    def _park(
        self,
        target: TargetPlan,
        parts: TableParts,
        decision: Decision,
        changes: Sequence[Change],
        connection: Connection,
        *,
        is_parked: bool,
    ) -> None:
        """Take away what is written down, where the table is as the plan has it or the load has begun to already."""
        oid = parts.table.oid
        # What is attached goes with it.
        names = ", ".join(part.name for part in decision.plan.parked)
        _log.info("dropping indexes and keys of %s, to be rebuilt after the load: %s", target.table, names)

        def act() -> None:
            lock_table(connection, oid)
            if not is_parked and not self._is_as_planned(target, oid, connection):
                raise TargetError(
                    f'table "{target.table}" got rows since the load was planned',
                    hint="Run the load again.",
                )
            park(connection, oid, changes)

        try:
            with_locks(
                act,
                plan=self._plan,
                tools=self._tools,
                connection=connection,
                relations=sorted({*parts.tables, *(int(c.record.get("references_oid", oid)) for c in changes)}),
                what=f'drop indexes of "{target.table}"',
            )
        except ServerError as error:
            is_needed = any(self._is_relied_on(target, key) for key in decision.foreign_keys)
            if error.sqlstate != _LOCK_NOT_AVAILABLE or is_needed or self._plan.job.rules.indexes != "auto":
                raise
            # Nobody has asked for it, and the load does without.
            self._tools.notice(f'indexes of "{target.table}" are kept: {error.message}')

    def _is_relied_on(self, target: TargetPlan, key: ForeignKey) -> bool:
        """Whether sessions would wait for rows of another, where a foreign key stays that the plan has parked."""
        loaded = {each.facts.oid for each in self._plan.targets if each.facts is not None}
        parked = () if target.parking is None else target.parking.parked
        planned = {part.name for part in parked if part.what == "foreign key"}
        return key.references_oid in loaded and key.name in planned and self._plan.sessions.maximum > 1

    def _check_relied_on(self, target: TargetPlan, decision: Decision, known: Collection[tuple[int, str]]) -> None:
        """Raise TargetError where a foreign key that the plan has parked stays now."""
        for key in decision.staying:
            if self._is_relied_on(target, key) and (key.relation_oid, key.name) not in known:
                raise TargetError(
                    f'foreign key "{key.name}" of "{target.table}" cannot be dropped as planned',
                    detail="The table got rows, or was altered.",
                    hint="Run the load again.",
                )

    def _is_as_planned(self, target: TargetPlan, oid: int, connection: Connection) -> bool:
        is_any_fine = self._plan.job.rules.indexes == "rebuild" or is_truncated(target)
        return is_any_fine or is_empty(connection, oid)

    # ---------------------------------------------------------------- after the last

    @property
    def is_holding(self) -> bool:
        """Whether something that this load has parked is not put back."""
        return bool(self._held) and not self.has_failed

    def put_back(
        self,
        load_id: str,
        connection: Connection,
        *,
        report: Report | None = None,
    ) -> tuple[Rebuilt, ...]:
        """Put back what this load has parked, unless another load at work wants it so.

        Raises DataError if rows do not fit a key: they stay, and what was not rebuilt stays parked. TargetError,
        ServerError.
        """
        if not self._held:
            return ()
        rebuilder = self._rebuilder(connection, report=report)
        try:
            done = rebuilder.put_back(self._held, load_id=load_id)
        except KeyboardInterrupt:
            # Whoever interrupts a rebuild does not want it begun again.
            self.has_failed = True
            self._tools.warnings.warn("parked-left", "indexes were not rebuilt: run penstock repair")
            raise
        self._tell(done)
        self.has_failed = bool(done.errors)
        done.raise_first()
        self._held.clear()
        return tuple(each for each in done.rebuilt if each.kind not in SWITCHES)

    def put_back_left(self, prepared: NothingToDo, connection: Connection) -> None:
        """Put back what loads that are gone have left parked of tables that need no load any more."""
        if prepared.changed_by:
            done = self._rebuilder(connection).put_back(prepared.changed_by)
            self._tell(done)
            _refuse_left(done, prepared.changed_by, self._tools, connection)

    def put_back_after(self, load_id: str, connection: Connection) -> None:
        """Put everything back after a load that failed; what cannot be is told, and left to penstock repair.

        Where it was the rebuild that failed, it is not tried again.
        """
        if not self.is_holding:
            return
        try:
            held = find_holds_of(connection, self._schema, load_id)
            for lock in {lock for _, lock in held}:
                if not self._take_lock(lock, connection):
                    # A session of ours whose connection broke may last until the server notices.
                    pid = find_lock_holder(connection, lock)
                    self.tell_left(f"backend {pid} holds the load's lock", how=f"{_REPAIR} if it does not resume it")
                    return
            for oid, _ in held:
                release_shape(connection, self._schema, load_id=load_id, target_oid=oid)
            self._tools.notice("rebuilding indexes and keys; interrupt to leave them to penstock repair")
            done = self._rebuilder(connection).put_back(self._held)
            self._tell(done)
            done.raise_first()
        except (PenstockError, KeyboardInterrupt) as trouble:
            why = trouble.message if isinstance(trouble, PenstockError) else "interrupted"
            self.tell_left(why)

    def tell_left(self, why: str, *, how: str = _REPAIR) -> None:
        """Say that what this load has parked is not put back, and why."""
        if self.is_holding:
            self._tools.warnings.warn("parked-left", f"indexes, keys or triggers were not restored ({why}): {how}")

    def _take_lock(self, lock: str, connection: Connection) -> bool:
        """Take the load's lock once more: our lost session may have it a moment longer."""
        until_s = self._tools.clock() + _LOCK_PATIENCE_S
        while not try_lock(connection, lock):
            if self._tools.clock() >= until_s:
                return False
            self._tools.sleep(_LOCK_LOOK_S)
        return True

    # ---------------------------------------------------------------- what it is done with

    def _rebuilder(self, connection: Connection, *, report: Report | None = None) -> Rebuilder:
        return Rebuilder(
            self._tools,
            connection,
            is_local=self._tools.guard is not None,
            patience_s=max(self._plan.job.rules.retry_for, DEFAULT_PATIENCE_S),
            report=report,
        )

    def _tell(self, done: PutBack) -> None:
        for text in dict.fromkeys(done.held):
            self._tools.warnings.warn("parked-left", text)

    def _tell_of_wait(self) -> None:
        self._tools.notice("waiting for another process that drops or rebuilds indexes of the table")
