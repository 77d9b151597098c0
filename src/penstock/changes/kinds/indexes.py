"""Indexes, keys and foreign keys: dropped before the rows, rebuilt by several sessions after them.

Indexes and keys of a table come first, foreign keys when the keys of both their tables stand. Each step ends in the
catalogue and takes its record with it, so that it can be interrupted anywhere and resumed from anywhere.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from penstock.changes.kinds.builders import Builders
from penstock.changes.kinds.foreign_keys import KeyRestore
from penstock.changes.kinds.part_restore import PartRestore, is_index_or_key
from penstock.changes.kinds.rebuild_plan import order_by_cost, order_by_depth, plan_rebuild
from penstock.host import cpu_count, memory_bytes
from penstock.server.changes.builds import read_build_progress
from penstock.server.changes.drop import drop_parts
from penstock.server.changes.look import look_at
from penstock.server.changes.parents import make_parent_index
from penstock.server.changes.parts import (
    PART_KINDS,
    capture_for,
    capture_many,
    measure_tables,
    read_index_record,
)
from penstock.server.changes.rebuild import build_index, complete_index, drop_records, lock_for_build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.changes.context import Context, Restored
    from penstock.model.load.shape import Change
    from penstock.server.changes.kind import Want
    from penstock.server.changes.look import State
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)


class IndexesAndKeys:
    """Drops what a load's plan says (loading/plan/parking), and rebuilds it."""

    keeps_records = True
    verb = "drop indexes"

    def handles(self, change: Change) -> bool:
        """Whether a record is of an index, key or foreign key."""
        return change.kind in PART_KINDS

    def find(self, connection: Connection, want: Want) -> Sequence[Change]:  # noqa: ARG002 (the plan has looked)
        """Return what the plan drops."""
        return want.parts

    def apply(self, connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:
        """Drop them, if all are as written down."""
        drop_parts(connection, target_oid, changes)

    def look(self, connection: Connection, change: Change) -> State:
        """Return how far it is rebuilt."""
        return look_at(capture_for(connection, change), change)

    def describe(self, changes: Sequence[Change]) -> str:
        """Return nothing: the plan has shown them."""
        _log.info("dropping, to be rebuilt after the load: %s", ", ".join(change.name for change in changes))
        return ""

    def restore_table(self, context: Context, changes: Sequence[Change], done: Restored) -> None:
        """Rebuild the indexes and keys of a table and its partitions."""
        _IndexRestore(context, done).run([change for change in changes if is_index_or_key(change)])

    def restore_rest(self, context: Context, oids: set[int], done: Restored) -> None:
        """Rebuild the foreign keys of the tables, and to them."""
        KeyRestore(context, done).run(oids)


class _IndexRestore(PartRestore):
    """Rebuilds the indexes and keys of one table; the caller has its lock."""

    def run(self, changes: Sequence[Change]) -> None:
        self.note_parents(changes)
        found = capture_many(self.connection, {change.relation_oid for change in changes}, what="indexes")
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
            elif state == "absent" and not _is_whole(change):
                absent.append(change)
            else:
                rest.append((change, state))
        drop_records(self.connection, self.schema, done_with)
        sizes = measure_tables(self.connection, list(found)) if len(found) > 1 else None
        self._build(order_by_cost(absent, sizes))
        # Their constraints need the table for themselves for a moment, and so come one after another.
        rest += [(change, "begun") for change in absent if not _is_done_at_once(change)]
        for change, state in sorted(rest, key=lambda each: each[0].number):
            self._finish(change, is_absent=state == "absent")
        for change in order_by_depth(parents, self.parents):
            self.make_parent(change, changes, make=make_parent_index)

    def _finish(self, change: Change, *, is_absent: bool) -> None:
        began_s = self.context.clock()
        self.context.say(f"rebuilding index {change.name}")
        if is_absent:
            self.with_locks(partial(build_index, self.connection, self.schema, change), change)
            index, _ = read_index_record(change)
            if not index.is_clustered and not index.is_replica_identity:
                self.note(change, self.context.clock() - began_s)
                return
        self.with_locks(partial(complete_index, self.connection, self.schema, change), change)
        self.note(change, self.context.clock() - began_s)

    def _build(self, changes: Sequence[Change]) -> None:
        """Build indexes by several sessions; the first error stops those that were not begun. Raises PenstockError."""
        if not changes:
            return
        is_local = self.context.is_local
        plan = plan_rebuild(
            len(changes),
            cpu_count=cpu_count() if is_local else None,
            memory_bytes=memory_bytes() if is_local else None,
        )
        _log.info("rebuilding %d indexes by %d sessions, %d workers each", len(changes), plan.sessions, plan.workers)
        Builders(
            self.context,
            plan,
            changes,
            build=self._build_one,
            note=self.note,
            look=None if self.context.report is None else partial(self._tell_progress, len(changes)),
        ).run()

    def _build_one(self, connection: Connection, change: Change) -> float:
        began_s = self.context.clock()

        def act() -> None:
            lock_for_build(connection, change)
            build_index(connection, self.schema, change)

        self.with_locks(act, change, connection=connection)
        return self.context.clock() - began_s

    def _tell_progress(self, count: int, done: int, building: Mapping[int, Change]) -> None:
        steps = read_build_progress(self.connection, {pid: change.name for pid, change in building.items()})
        self.context.say(f"rebuilding indexes, {done} of {count} done", steps)


def _is_whole(change: Change) -> bool:
    """Whether a constraint is made together with its index, which locks the table."""
    _, constraint = read_index_record(change)
    return constraint is not None and (constraint.kind == "x" or constraint.is_temporal)


def _is_done_at_once(change: Change) -> bool:
    index, constraint = read_index_record(change)
    return constraint is None and not index.is_clustered and not index.is_replica_identity
