"""What the restore of indexes and that of foreign keys have in common."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.server.changes.parts import is_foreign_key, parent_of, place_of
from penstock.server.changes.rebuild import noting_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.changes.context import Context, Restored
    from penstock.model.load.shape import Change
    from penstock.server.changes.parts import Place
    from penstock.server.connect.connection import Connection


def is_index_or_key(change: Change) -> bool:
    """Whether a record is of an index, or of a constraint that has one."""
    return change.kind in ("index", "constraint") and not is_foreign_key(change)


class PartRestore:
    """Waits for locks, notes what fails, and counts what is attached with its parent."""

    def __init__(self, context: Context, done: Restored) -> None:
        self.context = context
        self.connection = context.connection
        self.schema = context.schema
        self.done = done
        # Of each that is to be attached, to which.
        self.parents: dict[Place, Place | None] = {}

    def note_parents(self, changes: Iterable[Change]) -> None:
        """Remember what is to be attached to what."""
        self.parents.update((place_of(change), parent_of(change)) for change in changes)

    def make_parent(
        self,
        change: Change,
        changes: Iterable[Change],
        *,
        make: Callable[[Connection, str, Change, Sequence[Change]], None],
    ) -> None:
        """Make what belongs to a partitioned table; its partitions have theirs."""
        began_s = self.context.clock()
        children = [each for each in changes if parent_of(each) == place_of(change)]
        what = "foreign key" if is_foreign_key(change) else "index"
        self.context.say(f"rebuilding {what} {change.name} of the partitioned table")
        act = partial(make, self.connection, self.schema, change, children)
        self.with_locks(act, change, others=[child.relation_oid for child in children])
        self.note(change, self.context.clock() - began_s)

    def with_locks(
        self,
        act: Callable[[], None],
        change: Change,
        *,
        connection: Connection | None = None,
        others: Sequence[int] = (),
    ) -> None:
        """Run `act` once it gets its locks; write down with the record why it fails. Raises PenstockError."""
        relations = {change.relation_oid, *others}
        if is_foreign_key(change):
            relations.add(int(change.record["references_oid"]))
        what = f'rebuild "{change.name}" of "{change.target}"'
        with noting_failure(connection or self.connection, self.schema, change):
            self.context.with_locks(act, relations=relations, what=what, connection=connection)

    def note(self, change: Change, seconds: float) -> None:
        """Add what was rebuilt, under the name of the partitioned table's."""
        top = place_of(change)
        while (parent := self.parents.get(top)) is not None:
            top = parent
        self.done.note(change, seconds, name=top[1])
