"""The interface of the kinds of change at tables, and TableSwitch, a kind that ALTER TABLE makes and restores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from psycopg import sql

from penstock.changes.context import Context, Kind, Restored
from penstock.changes.records import delete_changes
from penstock.changes.tables.look import State
from penstock.changes.tables.parts import lock_relation, malformed_record
from penstock.changes.tables.rebuild import as_owner
from penstock.changes.values import Change, RepairAction
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.values.job import LoadRules, TargetJob
from penstock.core.values.table import TableFacts

_log = logging.getLogger(__name__)


@slotted
class TableRequest:
    """A table that a load is about to fill, and the options that decide what is changed while it is loaded."""

    table: TableFacts
    job: TargetJob
    rules: LoadRules
    load_id: str
    # The records of the indexes and keys that will be dropped.
    parts: Sequence[Change] = ()

    def change(self, kind: str, name: str, record: Mapping[str, Any], *, relation_oid: int) -> Change:
        """Return the record of a change of the table or of one of its partitions."""
        return Change(
            target_oid=self.table.oid,
            target=self.table.name,
            kind=kind,
            relation_oid=relation_oid,
            name=name,
            record=record,
            load_id=self.load_id,
        )


@slotted
class TableSwitch:
    """A kind of change that one ALTER TABLE makes and another restores, such as disabled triggers.

    A record (`Change`) describes the change of one object. The functions below find the objects to change, compose the
    ALTER TABLE actions, and say whether an object is still as the load has set it.
    """

    # The kind of change in records.
    name: str
    # The lock that the ALTER TABLE takes.
    lock_mode: str
    # Returns records of what a load will change in a table and its partitions.
    find: Callable[[Connection, TableRequest], Sequence[Change]]
    # Returns whether a record has every fact that records of this kind have. Statements are composed only from such
    # records.
    is_whole: Callable[[Change], bool]
    # "absent" if the object is as the load has set it, "there" if it is as before or somebody else has changed it
    # since, "gone" if it does not exist.
    state: Callable[[Connection, Change], State]
    compose_change: Callable[[Change], sql.Composable]
    # Returns the ALTER TABLE action that restores the object. Called while the load holds the table's lock, and only if
    # the state is "absent".
    compose_restore: Callable[[Connection, Change], sql.Composable]
    # Describes a change in the notice.
    words: Callable[[Change], str] = lambda change: change.kind

    def look(self, connection: Connection, change: Change) -> State:
        """Return the state of a change's object: "absent" if it is as the load has set it, "there" if not, "gone".

        "there" means that it is as before, or that somebody else has changed it since. "gone" means that it does not
        exist. Raises TargetError if the record is malformed, ServerError.
        """
        if not self.is_whole(change):
            raise malformed_record(change)
        return self.state(connection, change)

    def apply(self, connection: Connection, changes: Sequence[Change]) -> None:
        """Make the changes in the caller's transaction. Their records are committed already.

        The role must own each table. Raises TargetError if an object differs from its record, ServerError.
        """
        for change in changes:
            with translate_errors(f"disabling {change.kind} {change.name} of {change.target}"):
                relation = lock_relation(connection, change.relation_oid, self.lock_mode)
                if relation is None or self.look(connection, change) != "there":
                    raise TargetError(
                        f'{change.kind} "{change.name}" of table "{change.target}" was altered meanwhile',
                        hint="Run the load again.",
                    )
                connection.execute(sql.SQL("ALTER TABLE ONLY {} {}").format(relation, self.compose_change(change)))
        _log.info("disabled %s", ", ".join(change.name for change in changes))

    def restore(self, connection: Connection, schema: str, change: Change) -> None:
        """Restore the object of a change as it was before, and remove the record, in one transaction.

        This runs as the role that made the change. `schema` is the ledger's schema. The caller has shape_lock, so no
        load can change the object at the same time. The table is locked only if there is something to restore. Raises
        TargetError, ServerError.
        """
        what = f'restoring {change.kind} "{change.name}" of "{change.target}"'
        with in_transaction(connection, what), as_owner(connection, change):
            is_ours = self.look(connection, change) == "absent"
            relation = lock_relation(connection, change.relation_oid, self.lock_mode) if is_ours else None
            if relation is not None and self.look(connection, change) == "absent":
                action = self.compose_restore(connection, change)
                connection.execute(sql.SQL("ALTER TABLE ONLY {} {}").format(relation, action))
            delete_changes(connection, schema, [change])
        _log.info('restored %s "%s" of %s', change.kind, change.name, change.target)


class TableKind(Kind, Protocol):
    """A kind of change that a load makes to its tables. Methods raise TargetError, ServerError."""

    @property
    def activity(self) -> str:
        """Return what the change does, as a verb and its object, for messages about locks."""

    @property
    def keeps_records(self) -> bool:
        """Return whether an earlier record of the same object is kept and used instead of a new one.

        Once the rebuild of the object has begun, only the earlier record has the object's original state.
        """

    def find(self, connection: Connection, request: TableRequest) -> Sequence[Change]:
        """Return the changes that a load needs to make to a table. Nothing is changed yet."""

    def announce(self, changes: Sequence[Change]) -> str | None:
        """Return the notice to show before changes are made, None for no notice."""

    def apply(self, connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:
        """Make the changes of the table with OID `target_oid`, in the caller's transaction."""


@dataclass(frozen=True, slots=True)
class Switch(TableKind):
    """The TableKind of a TableSwitch, with the methods that the journal calls."""

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
