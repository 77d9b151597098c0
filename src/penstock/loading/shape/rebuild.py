"""Puts back what was parked: whatever no load at work wants away, by several sessions, and says what stands in the way.

Indexes and keys of a table come first, foreign keys when the keys of both their tables stand. Each step ends in the
catalogue and takes its record with it, so that it can be broken off anywhere and gone on with from anywhere.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, ServerError
from penstock.host import cpu_count, memory_bytes
from penstock.loading.plan.rebuild_plan import order_by_cost, order_by_depth, plan_rebuild
from penstock.loading.shape.builders import Builders
from penstock.model.load.shape import Rebuilt
from penstock.server.changes.holds import find_other_holds, release_shape, shape_lock
from penstock.server.changes.look import copied_record, look_at
from penstock.server.changes.parents import add_parent_key, make_parent_index
from penstock.server.changes.parts import (
    capture_for,
    capture_many,
    check_foreign_key_record,
    has_table,
    is_foreign_key,
    measure_tables,
    parent_of,
    place_of,
    read_index_record,
)
from penstock.server.changes.progress import read_build_progress
from penstock.server.changes.rebuild import (
    add_foreign_key,
    build_index,
    complete_index,
    drop_records,
    lock_for_build,
    noting_failure,
    validate_foreign_key,
)
from penstock.server.changes.records import read_changes
from penstock.server.changes.switches import SWITCHES, put_switch_back
from penstock.server.table.locking import describe_blocker, with_lock_retries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.loading.context import LoadTools, Report
    from penstock.model.load.outcome import StepProgress
    from penstock.model.load.shape import Change
    from penstock.server.changes.parts import Place
    from penstock.server.connect.connection import Connection
    from penstock.server.table.locking import Blocker

_log = logging.getLogger(__name__)

# How long locks are tried for where nobody has said: others' batches last ten seconds.
DEFAULT_PATIENCE_S = 300.0


@dataclass(slots=True, kw_only=True)
class PutBack:
    """What was put back, what other loads still want away, and the errors that were met.

    `copied` are those of records that came with a dump: what they tell of is no loss of these tables.
    """

    rebuilt: list[Rebuilt] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    errors: list[PenstockError] = field(default_factory=list)
    copied: list[PenstockError] = field(default_factory=list)

    def raise_first(self) -> None:
        """Raise the first error, which tells how many others there are."""
        if self.errors:
            first = self.errors[0]
            if others := len(self.errors) - 1:
                more = f"{others} more could not be rebuilt: see penstock repair --plan."
                first.detail = f"{first.detail}\n{more}" if first.detail else more
            if isinstance(first, ServerError):
                first.hint = f"{first.hint or ''} Indexes were not rebuilt: run penstock repair.".strip()
            raise first


class Rebuilder:
    """Puts tables back as they were; `connection` is one session, others are made as they are needed."""

    def __init__(
        self,
        tools: LoadTools,
        connection: Connection,
        *,
        is_local: bool,
        patience_s: float = DEFAULT_PATIENCE_S,
        report: Report | None = None,
    ) -> None:
        self._tools = tools
        self._connection = connection
        self._schema = tools.ledger.schema
        self._cpu_count = cpu_count() if is_local else None
        self._memory_bytes = memory_bytes() if is_local else None
        self._patience_s = max(patience_s, DEFAULT_PATIENCE_S)
        self._report = report
        self._told: set[int | None] = set()
        # Of each index and foreign key that is to be attached, to which.
        self._parents: dict[Place, Place | None] = {}

    def put_back(self, oids: Iterable[int], *, load_id: str | None = None) -> PutBack:
        """Put back what was parked for tables, as far as no load at work wants it away.

        `load_id` is a load of ours that wants it no longer. What fails is in the result, and what of the same table was
        not begun by then stays parked, but for foreign keys. Raises ServerError where the server goes away.
        """
        wanted = sorted(set(oids))
        done = PutBack()
        for oid in wanted:
            self._put_table_back(oid, load_id, done)
        self._put_references_back(set(wanted), done)
        return done

    # ---------------------------------------------------------------- indexes and keys

    def _put_table_back(self, oid: int, load_id: str | None, done: PutBack) -> None:
        with shape_lock(self._connection, oid, on_wait=self._tell_of_wait, sleep=self._tools.sleep):
            if load_id is not None:
                release_shape(self._connection, self._schema, load_id=load_id, target_oid=oid)
            written = read_changes(self._connection, self._schema, target_oid=oid)
            changes = [change for change in written if not change.is_copied]
            done.copied += [copied_record(change) for change in written if change.is_copied]
            if not changes or self._is_held(oid, changes[0], done):
                return
            try:
                # Whatever becomes of the indexes.
                for change in changes:
                    if change.kind in SWITCHES:
                        began_s = self._tools.clock()
                        self._with_locks(partial(put_switch_back, self._connection, self._schema, change), change)
                        self._note(change, began_s, done)
                indexes = [change for change in changes if self._is_index_or_key(change)]
                self._rebuild_indexes(indexes, done)
            except PenstockError as error:
                if error.is_transient:
                    raise
                done.errors.append(error)

    @staticmethod
    def _is_index_or_key(change: Change) -> bool:
        return change.kind in ("index", "constraint") and not is_foreign_key(change)

    def _is_held(self, oid: int, change: Change, done: PutBack) -> bool:
        holds = find_other_holds(self._connection, self._schema, oid)
        if holds:
            done.held.append(
                f'table "{change.target}" is being loaded by load {holds[0].load_id} (backend {holds[0].pid}), which '
                "rebuilds its indexes and keys"
            )
        return bool(holds)

    def _rebuild_indexes(self, changes: Sequence[Change], done: PutBack) -> None:
        self._note_parents(changes)
        found = capture_many(self._connection, {change.relation_oid for change in changes}, what="indexes")
        absent, rest, parents, done_with = [], [], [], []
        for change in changes:
            parts = found.get(change.relation_oid)
            state = look_at(parts, change)
            if state in ("gone", "there"):
                done_with.append(change)
            elif state == "made":
                # The partitioned table's attaches it.
                continue
            elif parts is not None and parts.table.kind == "p":
                parents.append(change)
            elif state == "absent" and not self._is_whole(change):
                absent.append(change)
            else:
                rest.append((change, state))
        drop_records(self._connection, self._schema, done_with)
        sizes = measure_tables(self._connection, list(found)) if len(found) > 1 else None
        self._build(order_by_cost(absent, sizes), done)
        # Their constraints need the table for themselves for a moment, and so come one after another.
        rest += [(change, "begun") for change in absent if not self._is_done_at_once(change)]
        for change, state in sorted(rest, key=lambda each: each[0].number):
            self._finish_index(change, done, is_absent=state == "absent")
        for change in order_by_depth(parents, self._parents):
            self._make_parent(change, self._children(change, changes), done, make=make_parent_index)

    def _note_parents(self, changes: Iterable[Change]) -> None:
        self._parents.update((place_of(change), parent_of(change)) for change in changes)

    @staticmethod
    def _children(change: Change, changes: Iterable[Change]) -> list[Change]:
        return [each for each in changes if parent_of(each) == place_of(change)]

    def _make_parent(
        self,
        change: Change,
        children: Sequence[Change],
        done: PutBack,
        *,
        make: Callable[[Connection, str, Change, Sequence[Change]], None],
    ) -> None:
        """Make what belongs to a partitioned table; its partitions have theirs."""
        began_s = self._tools.clock()
        what = "foreign key" if is_foreign_key(change) else "index"
        self._say(f"rebuilding {what} {change.name} of the partitioned table")
        act = partial(make, self._connection, self._schema, change, children)
        self._with_locks(act, change, others=[child.relation_oid for child in children])
        self._note(change, began_s, done)

    @staticmethod
    def _is_whole(change: Change) -> bool:
        """Whether a constraint is made together with its index, which locks the table."""
        _, constraint = read_index_record(change)
        return constraint is not None and (constraint.kind == "x" or constraint.is_temporal)

    @staticmethod
    def _is_done_at_once(change: Change) -> bool:
        index, constraint = read_index_record(change)
        return constraint is None and not index.is_clustered and not index.is_replica_identity

    def _finish_index(self, change: Change, done: PutBack, *, is_absent: bool) -> None:
        began_s = self._tools.clock()
        self._say(f"rebuilding index {change.name}")
        if is_absent:
            self._with_locks(partial(build_index, self._connection, self._schema, change), change)
            index, _ = read_index_record(change)
            if not index.is_clustered and not index.is_replica_identity:
                self._note(change, began_s, done)
                return
        self._with_locks(partial(complete_index, self._connection, self._schema, change), change)
        self._note(change, began_s, done)

    def _build(self, changes: Sequence[Change], done: PutBack) -> None:
        """Make indexes by several sessions; the first error stops those that were not begun. Raises PenstockError."""
        if not changes:
            return
        plan = plan_rebuild(len(changes), cpu_count=self._cpu_count, memory_bytes=self._memory_bytes)
        _log.info("rebuilding %d indexes by %d sessions, %d workers each", len(changes), plan.sessions, plan.workers)
        Builders(
            self._tools,
            plan,
            changes,
            build=self._build_one,
            note=partial(self._note_built, done=done),
            look=None if self._report is None else partial(self._tell_progress, len(changes)),
        ).run()

    def _build_one(self, connection: Connection, change: Change) -> float:
        began_s = self._tools.clock()

        def act() -> None:
            lock_for_build(connection, change)
            build_index(connection, self._schema, change)

        self._with_locks(act, change, connection=connection)
        return self._tools.clock() - began_s

    # ---------------------------------------------------------------- foreign keys

    def _put_references_back(self, oids: set[int], done: PutBack) -> None:
        changes = self._read_references(oids, done)
        self._note_parents(changes)
        failed: set[Place | None] = set()
        # All are enforced for new rows before the old ones are looked at, which may take hours, and fail.
        for is_validating in (False, True):
            for found in order_by_depth(changes, self._parents):
                if place_of(found) in failed:
                    # Rows of a partition do not fit: they would not fit above it either.
                    failed.add(parent_of(found))
                    continue
                try:
                    self._put_reference_back(found, done, is_validating=is_validating)
                except PenstockError as error:
                    if error.is_transient:
                        raise
                    done.errors.append(error)
                    failed |= {place_of(found), parent_of(found)}

    def _read_references(self, oids: set[int], done: PutBack) -> list[Change]:
        """Return the foreign keys of the tables, and to them, of which the key that they rely on stands."""
        written = [change for change in read_changes(self._connection, self._schema) if not change.is_copied]
        missing = {place_of(change) for change in written if self._is_index_or_key(change)}
        changes = []
        for change in written:
            if is_foreign_key(change):
                try:
                    check_foreign_key_record(change)
                except PenstockError as error:
                    done.errors += [error] if change.target_oid in oids else []
                else:
                    relied_on = (int(change.record["references_oid"]), change.record["references_index"])
                    if _tables_of(change) & oids and relied_on not in missing:
                        changes.append(change)
        return changes

    def _put_reference_back(self, found: Change, done: PutBack, *, is_validating: bool) -> None:
        """Add a foreign key that is not there; have the server look at the rows, if it `is_validating`."""
        connection, schema = self._connection, self._schema
        with shape_lock(connection, found.target_oid, on_wait=self._tell_of_wait, sleep=self._tools.sleep):
            now = read_changes(connection, schema, target_oid=found.target_oid)
            change = next((each for each in now if each.number == found.number and each.name == found.name), None)
            if change is None or any(self._is_held(oid, change, done) for oid in sorted(_tables_of(found))):
                return
            parts = capture_for(connection, change)
            state = look_at(parts, change)
            if state in ("gone", "there") or not has_table(connection, int(change.record["references_oid"])):
                drop_records(connection, schema, [change])
                return
            if state == "made":
                # The partitioned table's attaches it.
                return
            if parts is not None and parts.table.kind == "p":
                if is_validating:
                    self._make_parent(change, self._children(change, now), done, make=add_parent_key)
                return
            began_s = self._tools.clock()
            self._say(f"rebuilding foreign key {change.name}")
            if state == "absent":
                self._with_locks(partial(add_foreign_key, connection, schema, change), change)
            is_valid = change.record["is_validated"] and change.record["is_enforced"]
            if is_valid and is_validating:
                with noting_failure(connection, schema, change):
                    validate_foreign_key(connection, schema, change)
            if is_validating or not is_valid:
                self._note(change, began_s, done)

    # ---------------------------------------------------------------- said and waited for

    def _with_locks(
        self,
        act: Callable[[], None],
        change: Change,
        *,
        connection: Connection | None = None,
        others: Sequence[int] = (),
    ) -> None:
        relations = [change.relation_oid, *others]
        if is_foreign_key(change):
            relations.append(int(change.record["references_oid"]))

        def tell(blockers: tuple[Blocker, ...]) -> None:
            if news := [blocker for blocker in blockers if blocker.pid not in self._told]:
                self._told.update(blocker.pid for blocker in news)
                words = "; ".join(map(describe_blocker, news))
                self._tools.notice(f'waiting to rebuild "{change.name}" of "{change.target}": {words}')

        session = self._connection if connection is None else connection
        with nullcontext() if change.kind in SWITCHES else noting_failure(session, self._schema, change):
            with_lock_retries(
                session,
                act,
                relations=relations,
                deadline_s=self._patience_s,
                on_blocked=tell,
                clock=self._tools.clock,
                sleep=self._tools.sleep,
            )

    def _tell_of_wait(self) -> None:
        self._tools.notice("waiting for another process that drops or rebuilds indexes of the table")

    def _tell_progress(self, count: int, done: int, building: Mapping[int, Change]) -> None:
        steps = read_build_progress(self._connection, {pid: change.name for pid, change in building.items()})
        self._say(f"rebuilding indexes, {done} of {count} done", steps)

    def _say(self, text: str, steps: tuple[StepProgress, ...] = ()) -> None:
        if self._report is not None:
            self._report(text, steps)

    def _note(self, change: Change, began_s: float, done: PutBack) -> None:
        self._note_built(change, self._tools.clock() - began_s, done=done)

    def _note_built(self, change: Change, seconds: float, *, done: PutBack) -> None:
        """Add what was put back; the two steps of a key make one, and so does what is attached to a partitioned one."""
        top = place_of(change)
        # A trigger may have an index's name.
        while change.kind not in SWITCHES and (parent := self._parents.get(top)) is not None:
            top = parent
        name = top[1]
        for place, other in enumerate(done.rebuilt):
            if (other.name, other.table, other.kind) == (name, str(change.target), change.kind):
                done.rebuilt[place] = Rebuilt(
                    kind=other.kind, name=other.name, table=other.table, seconds=other.seconds + seconds
                )
                return
        done.rebuilt.append(Rebuilt(kind=change.kind, name=name, table=str(change.target), seconds=seconds))


def _tables_of(reference: Change) -> set[int]:
    """Return the tables that a foreign key is about, and the one that was loaded."""
    return {reference.target_oid, reference.relation_oid, int(reference.record["references_oid"])}
