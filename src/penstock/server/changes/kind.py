"""The kinds of change that one ALTER TABLE makes and another one restores: each is a TableSwitch.

Restored is the state that was, to the letter. What somebody has set meanwhile is theirs, and left as it is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from penstock.errors import TargetError
from penstock.model.load.shape import Change
from penstock.server.changes.parts import lock_relation, spoilt_record
from penstock.server.changes.rebuild import as_owner
from penstock.server.changes.records import delete_changes
from penstock.server.connect.errors import in_transaction, translate_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.model.load.job import LoadRules, TargetJob
    from penstock.model.server.table import TableFacts
    from penstock.server.changes.look import State
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A table that a load is about to fill, and what decides how it is changed meanwhile.

    `parts` are records of the indexes and keys that are to be dropped.
    """

    table: TableFacts
    job: TargetJob
    rules: LoadRules
    load_id: str
    parts: Sequence[Change] = ()

    def change(self, kind: str, name: str, record: Mapping[str, Any], *, relation_oid: int) -> Change:
        """Return the record of a change at the table, or at a partition of it."""
        return Change(
            target_oid=self.table.oid,
            target=self.table.name,
            kind=kind,
            relation_oid=relation_oid,
            name=name,
            record=record,
            load_id=self.load_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSwitch:
    """A kind of change, by its `name` in records; `lock_mode` is what its ALTER TABLE takes.

    `find` returns records of what a load is to change at a table and its partitions. `is_whole` tells whether a record
    is one that was written: what is composed from it is run. `state` is "there" for what is as before or as somebody
    has set it since, "absent" for what is as the load has set it, or "gone". What is composed follows ALTER TABLE; for
    `compose_restore` the table is locked and the state "absent". `words` are for the notice.
    """

    name: str
    lock_mode: str
    find: Callable[[Connection, Want], Sequence[Change]]
    is_whole: Callable[[Change], bool]
    state: Callable[[Connection, Change], State]
    compose_change: Callable[[Change], sql.Composable]
    compose_restore: Callable[[Connection, Change], sql.Composable]
    words: Callable[[Change], str] = lambda change: change.kind

    def look(self, connection: Connection, change: Change) -> State:
        """Return how far a record's thing is there. Raises TargetError for a record that is not whole, ServerError."""
        if not self.is_whole(change):
            raise spoilt_record(change)
        return self.state(connection, change)

    def apply(self, connection: Connection, changes: Sequence[Change]) -> None:
        """Make the changes in the caller's transaction; they are written down, and committed.

        Needs the owner of each table. Raises TargetError where something is not as it was written down, ServerError.
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
        """Restore what was before, as the role that changed it, and remove its record; in one transaction.

        `schema` is the ledger's. The caller has shape_lock: no load changes it meanwhile, so that one that is as before
        needs no other lock. Raises TargetError, ServerError.
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
