"""Defines TableSwitch: a kind of change that one ALTER TABLE makes and another ALTER TABLE restores.

A restore sets exactly the earlier state. If somebody else has changed the object since the load did, the object is left
unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql

from penstock.errors import TargetError
from penstock.frozen import frozen
from penstock.model.load.shape import Change
from penstock.server.changes.parts import lock_relation, malformed_record
from penstock.server.changes.rebuild import as_owner
from penstock.server.changes.records import delete_changes
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import in_transaction, translate_errors

if TYPE_CHECKING:
    from penstock.model.load.job import LoadRules, TargetJob
    from penstock.model.server.table import TableFacts
    from penstock.server.changes.look import State

_log = logging.getLogger(__name__)


@frozen
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


@frozen
class TableSwitch:
    """A kind of change of tables. It composes SQL that follows ALTER TABLE."""

    # The kind of change in records.
    name: str
    # The lock that its ALTER TABLE takes.
    lock_mode: str
    # Returns records of what a load will change in a table and its partitions.
    find: Callable[[Connection, TableRequest], Sequence[Change]]
    # Returns whether a record has all that this kind writes. It is checked before statements are composed from the
    # record.
    is_whole: Callable[[Change], bool]
    # "absent" if the object is as the load has set it, "there" if it is as before or somebody else has changed it
    # since, "gone" if it does not exist.
    state: Callable[[Connection, Change], State]
    compose_change: Callable[[Change], sql.Composable]
    # Called when the table is locked and the state is "absent".
    compose_restore: Callable[[Connection, Change], sql.Composable]
    # Describes a change in the notice.
    words: Callable[[Change], str] = lambda change: change.kind

    def look(self, connection: Connection, change: Change) -> State:
        """Return the state of the object of a record. Raises TargetError if the record is malformed, ServerError."""
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
        """Restore the earlier state as the role that changed it, and remove the record, in one transaction.

        `schema` is the ledger's. The caller has shape_lock, so no load can change the object at the same time. The
        table is locked only if there is something to restore. Raises TargetError, ServerError.
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
