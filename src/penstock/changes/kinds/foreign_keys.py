"""Foreign keys rebuilt: all are added, and so enforced for new rows, before the first is validated."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.changes.kinds.part_restore import PartRestore, is_index_or_key
from penstock.changes.kinds.rebuild_plan import order_by_depth
from penstock.errors import PenstockError
from penstock.server.changes import read_changes
from penstock.server.changes.look import look_at
from penstock.server.changes.parents import add_parent_key
from penstock.server.changes.parts import (
    capture_for,
    check_foreign_key_record,
    has_table,
    is_foreign_key,
    parent_of,
    place_of,
)
from penstock.server.changes.rebuild import add_foreign_key, drop_records, noting_failure, validate_foreign_key

if TYPE_CHECKING:
    from penstock.model.load.shape import Change
    from penstock.server.changes.parts import Place


class KeyRestore(PartRestore):
    """Rebuilds the foreign keys of tables, and to them, whose keys stand."""

    def run(self, oids: set[int]) -> None:
        """Rebuild them; what fails is noted, and what it belongs to is not tried."""
        changes = self._read(oids)
        self.note_parents(changes)
        failed: set[Place | None] = set()
        # All are enforced for new rows before the old ones are looked at, which may take hours, and fail.
        for is_validating in (False, True):
            for found in order_by_depth(changes, self.parents):
                if place_of(found) in failed:
                    # Rows of a partition do not fit: they would not fit above it either.
                    failed.add(parent_of(found))
                    continue
                try:
                    self._restore(found, is_validating=is_validating)
                except PenstockError as error:
                    if error.is_transient:
                        raise
                    self.done.errors.append(error)
                    failed |= {place_of(found), parent_of(found)}

    def _read(self, oids: set[int]) -> list[Change]:
        """Return the foreign keys of the tables, and to them, of which the key that they rely on stands."""
        written = [change for change in read_changes(self.connection, self.schema) if not change.is_copied]
        missing = {place_of(change) for change in written if is_index_or_key(change)}
        changes = []
        for change in written:
            if is_foreign_key(change):
                try:
                    check_foreign_key_record(change)
                except PenstockError as error:
                    self.done.errors += [error] if change.target_oid in oids else []
                else:
                    relied_on = (int(change.record["references_oid"]), change.record["references_index"])
                    if _tables_of(change) & oids and relied_on not in missing:
                        changes.append(change)
        return changes

    def _restore(self, found: Change, *, is_validating: bool) -> None:
        """Add a foreign key that is not there; have the server look at the rows, if it `is_validating`."""
        context, connection, schema = self.context, self.connection, self.schema
        with context.lock(found.target_oid):
            now = read_changes(connection, schema, target_oid=found.target_oid)
            change = next((each for each in now if each.number == found.number and each.name == found.name), None)
            if change is None or any(context.is_held(oid, change, self.done) for oid in sorted(_tables_of(found))):
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
                    self.make_parent(change, now, make=add_parent_key)
                return
            began_s = context.clock()
            context.say(f"rebuilding foreign key {change.name}")
            if state == "absent":
                self.with_locks(partial(add_foreign_key, connection, schema, change), change)
            is_valid = change.record["is_validated"] and change.record["is_enforced"]
            if is_valid and is_validating:
                with noting_failure(connection, schema, change):
                    validate_foreign_key(connection, schema, change)
            if is_validating or not is_valid:
                self.note(change, context.clock() - began_s)


def _tables_of(reference: Change) -> set[int]:
    """Return the tables that a foreign key is about, and the one that was loaded."""
    return {reference.target_oid, reference.relation_oid, int(reference.record["references_oid"])}
