"""Drops indexes, keys and foreign keys before the rows of a load, and rebuilds them in several sessions afterwards.

Indexes and keys of a table are rebuilt first. A foreign key is rebuilt when the keys of both its tables exist. Each
step removes its record in the transaction that changes the catalogue, so a rebuild can be interrupted and resumed
anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from psycopg import sql

from penstock.changes.context import Context, Restored
from penstock.changes.tables.builds import Builders, plan_builds, read_build_progress
from penstock.changes.tables.definition import run_all
from penstock.changes.tables.kind import TableRequest
from penstock.changes.tables.look import State, look_at
from penstock.changes.tables.parts import (
    PART_KINDS,
    ForeignKey,
    IndexPart,
    PartId,
    TableParts,
    capture_for,
    capture_many,
    capture_tree,
    check_foreign_key_record,
    has_table,
    is_foreign_key,
    lock_relation,
    measure_tables,
    parent_id_of,
    part_id_of,
    read_index_record,
)
from penstock.changes.tables.rebuild import (
    add_foreign_key,
    add_parent_key,
    build_index,
    complete_index,
    drop_records,
    is_lasting,
    lock_for_build,
    make_parent_index,
    recording_failure,
    validate_foreign_key,
)
from penstock.changes.tables.rebuild_plan import order_by_cost, order_by_depth
from penstock.changes.values import Change, RepairAction
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import PenstockError, TargetError

_log = logging.getLogger(__name__)


def make_changes(
    parts: TableParts, request: TableRequest, *, indexes: Iterable[IndexPart], foreign_keys: Iterable[ForeignKey]
) -> list[Change]:
    """Return the records of the indexes and foreign keys that will be dropped.

    Foreign keys come first, because they depend on indexes. `parts` are those of the table and its partitions.
    """
    changes = [
        request.change(
            "constraint" if key.relation_oid in parts.tables else "reference",
            key.name,
            key.record(),
            relation_oid=key.relation_oid,
        )
        for key in foreign_keys
    ]
    for part in indexes:
        kind = "index" if part.constraint is None else "constraint"
        oid = part.facts.relation_oid
        # Name a partition: in a restored copy of the database, it has another oid.
        name = {} if oid == request.table.oid else {"relation": parts.tables[oid].table.quoted_name}
        changes.append(request.change(kind, part.name, part.record() | name, relation_oid=oid))
    return changes


def drop_parts(connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:
    """Lock a table and drop the indexes and keys that the changes record, in the caller's transaction.

    Raises TargetError if an object differs from its record, ServerError.
    """
    with translate_errors("locking a table"):
        lock_relation(connection, target_oid, "ACCESS EXCLUSIVE", with_partitions=True)
    found = capture_tree(connection, target_oid)
    if found is None:
        raise TargetError("the table does not exist any more", detail=f"No relation has oid {target_oid}.")
    for change in changes:
        _check_unchanged(found, change)
    places = {part_id_of(change) for change in changes}
    attached: list[IndexPart | ForeignKey] = [*found.all_indexes, *found.all_foreign_keys]
    for part in attached:
        # Refuse to drop the parent, because this part would be dropped with it but has no record.
        if part.parent_id in places and part.part_id not in places:
            raise _altered(part.name, found.table.quoted_name)
    _log.info("dropping %d indexes and keys of %s", len(changes), found.table.quoted_name)
    with translate_errors(f"dropping indexes of {found.table.quoted_name}"):
        run_all(connection, _compose_drops(found, changes, places))


def _check_unchanged(found: TableParts, change: Change) -> None:
    """Raise TargetError if an object differs from its record. An object that is only partly rebuilt is accepted."""
    # `found` has the tables that are loaded. A foreign key of another table is listed with the table that it refers to.
    oid = change.relations[-1] if change.kind == "reference" else change.relation_oid
    if look_at(found.tables.get(oid), change) not in ("there", "begun", "made"):
        raise _altered(change.name, str(change.target))


def _altered(name: str, table: str) -> TargetError:
    return TargetError(
        f'"{name}" of table "{table}" was created, altered or dropped meanwhile', hint="Run the load again."
    )


def _compose_drops(found: TableParts, changes: Sequence[Change], places: Collection[PartId]) -> Iterator[sql.Composed]:
    """Yield the statements that drop objects. Dropping a parent also drops what is attached to it."""
    drop = sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}")
    keys = {key.part_id: key for key in found.all_foreign_keys}
    indexes = {part.part_id: part for part in found.all_indexes}
    for change in changes:
        name = sql.Identifier(change.name)
        part = keys[part_id_of(change)] if is_foreign_key(change) else indexes[part_id_of(change)]
        if part.parent_id in places:
            continue
        if isinstance(part, ForeignKey):
            # The name comes from the record. _check_unchanged has compared it with the name that the server returned.
            yield drop.format(sql.SQL(change.record["relation"]), name)
            continue
        table = found.tables[change.relation_oid].table
        if part.constraint is None:
            yield sql.SQL("DROP INDEX {}").format(sql.Identifier(table.schema, change.name))
        else:
            yield drop.format(sql.Identifier(table.schema, table.name), name)


class IndexesAndKeys:
    """The kind of change that drops the indexes and keys that a load's plan names, and rebuilds them."""

    activity = "drop indexes"
    keeps_records = True

    def handles(self, change: Change) -> bool:
        return change.kind in PART_KINDS

    def find(self, connection: Connection, request: TableRequest) -> Sequence[Change]:  # noqa: ARG002 (see TableKind)
        return request.parts

    def announce(self, changes: Sequence[Change]) -> None:
        """Return None, so that no notice is shown. The plan has named the indexes and keys already."""

    apply = staticmethod(drop_parts)

    def restore(self, context: Context, changes: Sequence[Change], done: Restored) -> Sequence[Change]:
        """Rebuild the indexes, primary keys and other constraints of a table and its partitions.

        If the rebuild of one fails, the others are rebuilt all the same. Each rebuild also removes its record, so no
        change is returned.
        """
        _Rebuild(context, done).rebuild_indexes([change for change in changes if not is_foreign_key(change)])
        return ()

    def restore_rest(self, context: Context, oids: set[int], done: Restored) -> None:
        """Rebuild the foreign keys of the tables, and foreign keys of other tables that refer to these tables.

        A foreign key is rebuilt only if the unique or primary key that it refers to exists.
        """
        _Rebuild(context, done).rebuild_keys(oids)

    def describe(self, context: Context, change: Change) -> tuple[RepairAction, str]:
        if is_foreign_key(change):
            check_foreign_key_record(change)
        steps: dict[State, tuple[RepairAction, str]] = {
            "gone": ("forget", "the table does not exist any more"),
            "there": ("forget", "it exists as before"),
            "begun": ("finish", change.failure or "its rebuild was begun"),
            "made": ("finish", "it exists, and is not attached to the partitioned table's"),
            "absent": ("rebuild", change.failure or f"load {change.load_id} has dropped it"),
        }
        return steps[look_at(capture_for(context.connection, change), change)]


class _Rebuild:
    """Rebuilds the indexes of one table, or foreign keys.

    The caller has the lock of the table. The tables of foreign keys are locked here.
    """

    def __init__(self, context: Context, done: Restored) -> None:
        self._context = context
        self._connection = context.connection
        self._schema = context.schema
        self._done = done
        # The parent of each index or foreign key, None if it has no parent.
        self._parents: dict[PartId, PartId | None] = {}
        # The indexes and keys that could not be rebuilt, and all above them.
        self._failed: set[PartId] = set()
        # The seconds that the rebuild of each topmost parent has taken so far.
        self._seconds: dict[PartId, float] = {}

    # ---------------------------------------------------------------- indexes and keys

    def rebuild_indexes(self, changes: Sequence[Change]) -> None:
        """Rebuild all indexes but those whose rebuild fails, such as a key that rows violate, and their parents."""
        self._add_parents(changes)
        found = capture_many(self._connection, {change.relation_oid for change in changes}, what="indexes")
        absent, rest, parents, done_with = [], [], [], []
        for change in changes:
            parts = found.get(change.relation_oid)
            state = None
            with self._keeping_error(change), recording_failure(self._connection, self._schema, change):
                state = look_at(parts, change)
            if state in ("gone", "there"):
                done_with.append(change)
            elif state in (None, "made"):
                # Skip the object. If it is made, it is attached when the parent's object is rebuilt.
                continue
            elif parts is not None and parts.table.kind == "p":
                parents.append(change)
            elif state == "absent" and not _locks_table(change):
                absent.append(change)
            else:
                rest.append((change, state))
        # If a partition's object is refused, all records stay: the user may have to drop what was created above it.
        done_with = [change for change in done_with if self._top_of(change) not in self._failed]
        drop_records(self._connection, self._schema, done_with)
        self._build(absent)
        # Adding a constraint locks the table exclusively for a moment, so constraints are added one after another.
        built = [change for change in absent if part_id_of(change) not in self._failed]
        rest += [(change, "begun") for change in built if not _is_done_at_once(change)]
        for change, state in sorted(rest, key=lambda each: each[0].number):
            with self._keeping_error(change):
                self._finish_index(change, is_absent=state == "absent")
        for change in order_by_depth(parents, self._parents):
            if part_id_of(change) not in self._failed:
                with self._keeping_error(change):
                    self._make_parent(change, changes, make=make_parent_index)

    @contextmanager
    def _keeping_error(self, change: Change) -> Iterator[None]:
        """Add an error of the block to the result, so that the other objects are rebuilt.

        An error that is not lasting is raised: the others would wait for the same lock, or have no connection either.
        """
        try:
            yield
        except PenstockError as error:
            if not is_lasting(error):
                raise
            self._done.errors.append(error)
            part: PartId | None = part_id_of(change)
            while part is not None and part not in self._failed:
                self._failed.add(part)
                part = self._parents.get(part)

    def _finish_index(self, change: Change, *, is_absent: bool) -> None:
        began_s = self._context.clock()
        self._context.say(f"rebuilding index {change.name}")
        index, _ = read_index_record(change)
        if is_absent:
            self._with_locks(partial(build_index, self._connection, self._schema, change), change)
        if not is_absent or index.is_marked:
            self._with_locks(partial(complete_index, self._connection, self._schema, change), change)
        self._note(change, self._context.clock() - began_s)

    def _build(self, changes: Sequence[Change]) -> None:
        """Build indexes in several sessions.

        After an error that is not lasting, no further build is started, and it is raised.
        """
        if not changes:
            return
        sizes = measure_tables(self._connection, [change.relation_oid for change in changes])
        plan = plan_builds(self._connection, len(changes), is_local=self._context.is_local)
        _log.info("rebuilding %d indexes by %d sessions on %d CPUs", len(changes), plan.sessions, plan.cpus)
        look = None if self._context.report is None else partial(self._report_progress, len(changes))
        Builders(
            self._context,
            plan,
            order_by_cost(changes, sizes),
            sizes=sizes,
            build=self._build_one,
            note=lambda change, seconds: self._note(change, seconds, is_whole=_is_done_at_once(change)),
            look=look,
        ).run()

    def _build_one(self, connection: Connection, change: Change) -> float | None:
        began_s = self._context.clock()

        def act() -> None:
            lock_for_build(connection, change)
            build_index(connection, self._schema, change)

        with self._keeping_error(change):
            self._with_locks(act, change, connection=connection)
        return None if part_id_of(change) in self._failed else self._context.clock() - began_s

    def _report_progress(self, count: int, done: int, building: Mapping[int, Change]) -> None:
        steps = read_build_progress(self._connection, {pid: change.name for pid, change in building.items()})
        self._context.say(f"rebuilding indexes, {done} of {count} done", steps)

    # ---------------------------------------------------------------- foreign keys

    def rebuild_keys(self, oids: set[int]) -> None:
        changes = self._read_keys(oids)
        self._add_parents(changes)
        failed: set[PartId | None] = set()
        # First add all keys, so that new rows are checked. Then validate the existing rows, which can take hours and
        # fail.
        for is_validating in (False, True):
            for found in order_by_depth(changes, self._parents):
                if part_id_of(found) in failed:
                    # If rows of a partition violate the key, they also violate the parent's key.
                    failed.add(parent_id_of(found))
                    continue
                try:
                    self._rebuild_key(found, is_validating=is_validating)
                except PenstockError as error:
                    if error.is_transient:
                        raise
                    self._done.errors.append(error)
                    failed |= {part_id_of(found), parent_id_of(found)}

    def _read_keys(self, oids: set[int]) -> list[Change]:
        """Return the foreign keys of the tables, and those that refer to them, if the key that each needs exists."""
        written = [change for change in self._context.store.read_changes() if not change.is_copied]
        dropped = {part_id_of(each) for each in written if each.kind in PART_KINDS and not is_foreign_key(each)}
        changes = []
        for change in filter(is_foreign_key, written):
            try:
                check_foreign_key_record(change)
            except PenstockError as error:
                self._done.errors += [error] if change.target_oid in oids else []
            else:
                relied_on = (int(change.record["references_oid"]), change.record["references_index"])
                if _tables_of(change) & oids and relied_on not in dropped:
                    changes.append(change)
        return changes

    def _rebuild_key(self, found: Change, *, is_validating: bool) -> None:
        """Add a foreign key if it does not exist. Validate it if `is_validating`."""
        context, connection, schema = self._context, self._connection, self._schema
        with context.lock(found.target_oid):
            now = context.store.read_changes(found.target_oid)
            change = next((each for each in now if each.number == found.number and each.name == found.name), None)
            if change is None or any(context.is_held(oid, change, self._done) for oid in sorted(_tables_of(found))):
                return
            parts = capture_for(connection, change)
            with recording_failure(connection, schema, change):
                state = look_at(parts, change)
            if state in ("gone", "there") or not has_table(connection, int(change.record["references_oid"])):
                drop_records(connection, schema, [change])
                return
            if state == "made":
                # Skip the object. It is attached when the parent's object is rebuilt.
                return
            if parts is not None and parts.table.kind == "p":
                if is_validating:
                    self._make_parent(change, now, make=add_parent_key)
                return
            began_s = context.clock()
            context.say(f"rebuilding foreign key {change.name}")
            if state == "absent":
                self._with_locks(partial(add_foreign_key, connection, schema, change), change)
            is_valid = change.record["is_validated"] and change.record["is_enforced"]
            if is_valid and is_validating:
                with recording_failure(connection, schema, change):
                    validate_foreign_key(connection, schema, change)
            if is_validating or not is_valid:
                self._note(change, context.clock() - began_s)

    # ---------------------------------------------------------------- indexes and foreign keys

    def _add_parents(self, changes: Iterable[Change]) -> None:
        self._parents.update((part_id_of(change), parent_id_of(change)) for change in changes)

    def _make_parent(
        self,
        change: Change,
        changes: Iterable[Change],
        *,
        make: Callable[[Connection, str, Change, Sequence[Change]], None],
    ) -> None:
        """Create the index or foreign key of a partitioned table. The partitions' indexes or keys exist already."""
        began_s = self._context.clock()
        children = [each for each in changes if parent_id_of(each) == part_id_of(change)]
        what = "foreign key" if is_foreign_key(change) else "index"
        self._context.say(f"rebuilding {what} {change.name} of the partitioned table")
        act = partial(make, self._connection, self._schema, change, children)
        self._with_locks(act, change, others=[child.relation_oid for child in children])
        self._note(change, self._context.clock() - began_s)

    def _with_locks(
        self,
        act: Callable[[], None],
        change: Change,
        *,
        connection: Connection | None = None,
        others: Sequence[int] = (),
    ) -> None:
        """Run `act` once it gets its locks. If it fails, add the reason to the record. Raises PenstockError."""
        relations = {*change.relations, *others}
        what = f'rebuild "{change.name}" of "{change.target}"'
        with recording_failure(connection or self._connection, self._schema, change):
            self._context.with_locks(act, relations=relations, what=what, connection=connection)

    def _top_of(self, change: Change) -> PartId:
        """Return the id of the topmost parent that has a record, or of the change itself."""
        top = part_id_of(change)
        while (parent := self._parents.get(top)) in self._parents and parent is not None:
            top = parent
        return top

    def _note(self, change: Change, seconds: float, *, is_whole: bool = True) -> None:
        """Count the seconds of what was rebuilt. Add it to the result if it is whole and its parent has no record."""
        top = self._top_of(change)
        self._seconds[top] = self._seconds.get(top, 0.0) + seconds
        if is_whole and top == part_id_of(change):
            self._done.note(change, self._seconds.pop(top))


def _locks_table(change: Change) -> bool:
    """Whether a constraint must be created together with its index, which locks the table during the build."""
    _, constraint = read_index_record(change)
    return constraint is not None and constraint.makes_index


def _is_done_at_once(change: Change) -> bool:
    index, constraint = read_index_record(change)
    return constraint is None and not index.is_marked


def _tables_of(reference: Change) -> set[int]:
    """Return the two tables of a foreign key and the table that was loaded."""
    return {reference.target_oid, *reference.relations}
