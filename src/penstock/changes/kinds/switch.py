"""Makes a change of a table by one ALTER TABLE and restores it by another, each in its own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from penstock.changes.kinds.kind import TableKind

if TYPE_CHECKING:
    from penstock.changes.context import Context, Restored
    from penstock.model.load.shape import Change, RepairAction
    from penstock.server.changes.kind import TableRequest, TableSwitch
    from penstock.server.connect.connection import Connection


@dataclass(frozen=True, slots=True)
class Switch(TableKind):
    """The kind of change that a TableSwitch describes."""

    switch: TableSwitch
    # If the object is unchanged, the load that wrote the record was killed before it made the change. Somebody may have
    # changed the object since then, so the record is replaced.
    keeps_records: ClassVar[bool] = False

    @property
    def activity(self) -> str:
        return f"disable {self.switch.name}"

    def handles(self, change: Change) -> bool:
        return change.kind == self.switch.name

    def find(self, connection: Connection, request: TableRequest) -> Sequence[Change]:
        return self.switch.find(connection, request)

    def announce(self, changes: Sequence[Change]) -> str:
        words = ", ".join(dict.fromkeys(map(self.switch.words, changes)))
        return f'disabling at "{changes[0].target}", to be restored after the load: {words}'

    def apply(self, connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:  # noqa: ARG002 (see TableKind)
        self.switch.apply(connection, changes)

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:
        for change in changes:
            began_s = context.clock()
            act = partial(self.switch.restore, context.connection, context.schema, change)
            what = f'rebuild "{change.name}" of "{change.target}"'
            context.with_locks(act, relations=[change.relation_oid], what=what)
            done.note(change, context.clock() - began_s)
        return ()

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:
        if self.switch.look(context.connection, change) == "absent":
            return "restore", f"load {change.load_id} has disabled it"
        return "forget", "it was dropped or enabled"
