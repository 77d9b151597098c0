"""Rebuilds dropped indexes, keys and foreign keys, each in the transaction that removes its record.

changes/tables/definition.py composes the statements from the record. They are sent by the extended protocol, which
accepts only one statement at a time. They run as the role that dropped the object. The result is read back and compared
with the record before the commit.

An index or foreign key of a partitioned table is rebuilt from those that its partitions have. No rows are read if all
partitions have it. A partition that was added during the load gets it here, as if the parent's had existed when the
partition was added: an equal index of the partition is attached, or a new one is created.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from psycopg import errors, sql

from penstock.changes.records import delete_changes, write_failure
from penstock.changes.tables.definition import (
    ConstraintRow,
    IndexRow,
    compose_constraint_comment,
    compose_create_index,
    compose_index,
    compose_index_marks,
    compose_parent_index,
    local_settings,
)
from penstock.changes.tables.look import look_at
from penstock.changes.tables.parts import (
    IndexFacts,
    TableParts,
    capture_for,
    check_foreign_key_record,
    compose_forget,
    is_foreign_key,
    lock_relation,
    part_id_of,
    read_index_record,
    read_referring_columns,
)
from penstock.changes.values import Change
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import DataError, PenstockError, TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows, run_query

_log = logging.getLogger(__name__)

# The SQLSTATEs query_canceled and lock_not_available. The next attempt can succeed after such an error.
_PASSING = ("57014", "55P03")


@slotted
class CastRow:
    """The row of casts.sql: a cast by a function of an ordinary role that VALIDATE of a foreign key would run."""

    column: str
    owner: str


# ---------------------------------------------------------------- rebuilt


def build_index(connection: Connection, schema: str, change: Change) -> None:
    """Create the index of a change, and remove the record if the index then has all its recorded properties.

    An exclusion constraint, or a key WITHOUT OVERLAPS, is created together with its index. Until the index is built,
    the table is then locked for readers too. Raises DataError if rows violate the index, TargetError, ServerError.
    """
    index, constraint = read_index_record(change)
    with restoring(connection, change) as parts:
        check_columns(parts, change)
        statements = compose_index(index, constraint, table_of(parts), index.name)
        is_whole = constraint is None or constraint.makes_index
        with local_settings(connection, default_tablespace=index.tablespace):
            for statement in statements if is_whole else statements[:1]:
                execute_one(connection, statement)
        if is_whole and not index.is_marked:
            add_marks(connection, parts, index, constraint)
            end_change(connection, schema, change)


def complete_index(connection: Connection, schema: str, change: Change) -> None:
    """Add an index's constraint and its properties that CREATE INDEX cannot set, and remove the index's record.

    This locks the table for a moment, so call it within with_lock_retries. Raises TargetError, ServerError.
    """
    index, constraint = read_index_record(change)
    with restoring(connection, change) as parts:
        found = parts.index(change.name)
        if constraint is not None and found is not None and found.constraint is None:
            statements = compose_index(index, constraint, table_of(parts), index.name)
            execute_one(connection, statements[-1])
        add_marks(connection, parts, index, constraint)
        end_change(connection, schema, change)


def add_foreign_key(connection: Connection, schema: str, change: Change) -> None:
    """Add a foreign key without checking rows, and remove the change's record if the key is not to be validated.

    On a partitioned table, the server checks the rows of partitions that do not yet have a valid key. This locks both
    tables for a moment, so call it within with_lock_retries. Raises TargetError, ServerError.
    """
    record = change.record
    with restoring(connection, change) as parts:
        _check_foreign_key(connection, parts, change)
        _refuse_casts(connection, change)
        relation = sql.Identifier(*table_of(parts))
        # Before PostgreSQL 18 a partitioned table has no NOT VALID. Rows are not checked if the partitions' keys are
        # valid.
        is_valid = record["is_validated"] and record["is_enforced"] and parts.table.kind != "p"
        add = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}{}").format(
            relation,
            sql.Identifier(change.name),
            sql.SQL(record["definition"]),
            sql.SQL(" NOT VALID" if is_valid else ""),
        )
        execute_one(connection, add)
        if record["comment"] is not None:
            execute_one(connection, compose_constraint_comment(table_of(parts), change.name, record["comment"]))
        if not is_valid:
            end_change(connection, schema, change)


def validate_foreign_key(connection: Connection, schema: str, change: Change) -> None:
    """Validate a foreign key that was added: the server checks all rows. Then remove the record.

    Raises DataError if a row violates the foreign key, TargetError, ServerError.
    """
    with restoring(connection, change) as parts:
        _refuse_casts(connection, change)
        relation = sql.Identifier(*table_of(parts))
        validate = sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {}").format(relation, sql.Identifier(change.name))
        execute_one(connection, validate)
        end_change(connection, schema, change)


@contextmanager
def recording_failure(connection: Connection, schema: str, change: Change) -> Iterator[None]:
    """If the block raises an error, record its message as the reason why the change is not restored.

    Later loads report the reason. Errors of locks, cancelled statements and lost connections are not recorded, because
    the next attempt can succeed. If the role may not write the record, that is only logged.
    """
    try:
        yield
    except PenstockError as error:
        if is_lasting(error):
            # Take only the first line of the detail. It comes from the server, and names the key of a row that violates
            # the constraint.
            why = ". ".join(filter(None, (error.message, (error.detail or "").partition("\n")[0])))
            try:
                with in_transaction(connection, "recording a failure"), as_owner(connection, change):
                    write_failure(connection, schema, change, why)
            except PenstockError as trouble:
                _log.warning("what could not be restored is not recorded: %s", trouble.message)
        raise


def is_lasting(error: PenstockError) -> bool:
    """Return whether the next attempt will fail too: not after errors of locks, cancels and lost connections."""
    return not error.is_transient and error.sqlstate not in _PASSING


def drop_records(connection: Connection, schema: str, changes: Sequence[Change]) -> None:
    """Remove records of changes that need no more work, each as its owner. Raises TargetError, ServerError."""
    owners = {change.owner: change for change in changes}
    with in_transaction(connection, "removing the record of a change"):
        for owner, one in owners.items():
            with as_owner(connection, one):
                delete_changes(connection, schema, [change for change in changes if change.owner == owner])


def lock_for_build(connection: Connection, change: Change) -> None:
    """Take the lock of CREATE INDEX, so that lock_timeout limits the wait for it. Raises TargetError, ServerError.

    While a statement waits for this lock, later writers wait too.
    """
    with translate_errors(f'locking "{change.target}"'), as_owner(connection, change):
        if lock_relation(connection, change.relation_oid, "SHARE") is None:
            raise TargetError(f'table "{change.target}" does not exist any more')


def compose_rebuild(connection: Connection, change: Change) -> str:
    """Return the statement, for psql, that creates the object of a change, or validates a foreign key that exists.

    Raises TargetError, ServerError.
    """
    parts = capture_for(connection, change)
    if parts is None:
        raise TargetError(f'table "{change.relation}" does not exist any more')
    if is_foreign_key(change):
        check_foreign_key_record(change)
        definition = change.record["definition"]
    else:
        index, constraint = read_index_record(change)
        if constraint is None:
            return compose_index(index, None, table_of(parts), index.name)[0].as_string(connection) + ";"
        definition = constraint.definition
    # A foreign key that exists must only be validated.
    exists = any(key.part_id == part_id_of(change) for key in parts.foreign_keys)
    words = sql.SQL("ALTER TABLE {} VALIDATE CONSTRAINT {};" if exists else "ALTER TABLE {} ADD CONSTRAINT {} {};")
    return words.format(sql.Identifier(*table_of(parts)), sql.Identifier(change.name), sql.SQL(definition)).as_string(
        connection
    )


# ---------------------------------------------------------------- its parts


@contextmanager
def restoring(connection: Connection, change: Change) -> Iterator[TableParts]:
    """Run the block as the owner of a change's record, in a transaction or a savepoint of the caller's transaction.

    Yield the present indexes or foreign keys of the change's table. Raises DataError if rows violate the object,
    TargetError, ServerError.
    """
    what = f'rebuilding {change.kind} "{change.name}" of "{change.target}"'
    try:
        with in_transaction(connection, what):
            parts = capture_for(connection, change)
            if parts is None:
                raise TargetError(f'table "{change.target}" does not exist any more')
            with as_owner(connection, change):
                yield parts
    except DataError as error:
        raise _does_not_fit(change, error) from error


@contextmanager
def as_owner(connection: Connection, change: Change) -> Iterator[None]:
    """Run the block, in the caller's transaction, as the role that made the change.

    Raises TargetError if the current role may not become that role, or the role does not exist.
    """
    user, may_become = fetch_one(
        connection,
        "SELECT CURRENT_USER,"
        " (SELECT pg_catalog.pg_has_role(r.oid, 'MEMBER') FROM pg_catalog.pg_roles AS r WHERE r.rolname = %s)",
        [change.owner],
    )
    if user == change.owner:
        yield
        return
    if not may_become:
        raise TargetError(
            f'cannot restore {change.kind} "{change.name}" of table "{change.target}" as role "{user}"',
            detail=f'Role "{change.owner}" dropped it, and only that role can restore it.'
            if may_become is False
            else f'Role "{change.owner}", which dropped it, does not exist any more.',
            hint=f'Run penstock repair as "{change.owner}", as a member of it, or as a superuser.'
            if may_become is False
            else "As the ledger's owner, set owner in the rows of its table changes that have that role to the role "
            "that owns the table now; then run penstock repair.",
        )
    with local_settings(connection, role=change.owner):
        yield


def _does_not_fit(change: Change, error: DataError) -> DataError:
    is_reference = is_foreign_key(change)
    state = "it is enforced for new rows only" if is_reference else "it is missing"
    return DataError(
        f'cannot rebuild {"foreign key" if is_reference else change.kind} "{change.name}" '
        f'of table "{change.relation}": '
        f"{error.message}",
        detail=error.detail,
        hint=f"Rows of the table violate it, and {state}: remove them, then run penstock repair.",
        sqlstate=error.sqlstate,
    )


def check_columns(parts: TableParts, change: Change) -> None:
    """Raise TargetError if a column that an index depends on no longer exists or has another type."""
    ours = change.record["columns"]
    now = parts.table.columns
    if different := sorted(name for name, type_name in ours.items() if now.get(name) != type_name):
        raise _column_changed(change, different[0], was=ours[different[0]], now=now.get(different[0]))


def _check_foreign_key(connection: Connection, parts: TableParts, change: Change) -> None:
    """Raise TargetError if a table of a foreign key has another name, or one of its columns has another type."""
    record = change.record
    oid = record["references_oid"]
    rows = run_query(
        connection, "changes/key_columns", references=record["references"], oid=oid, relation=change.relation_oid
    ).fetchall()
    if parts.table.quoted_name != record["relation"] or not rows or not rows[0][2]:
        raise TargetError(
            f'cannot rebuild foreign key "{change.name}": one of its tables does not exist any more or was renamed',
            detail=f"It was on {record['relation']} and referenced {record['references']}.",
            hint=f"Run {compose_forget(change)}, and add it by hand.",
        )
    now = {name: type_name for name, type_name, _ in rows}
    for name, was in record["columns"].items():
        if now.get(name) != was:
            raise _column_changed(change, name.partition(".")[2], was=was, now=now.get(name))


def _refuse_casts(connection: Connection, change: Change) -> None:
    """Raise TargetError if checking a foreign key's rows can run functions of an ordinary role.

    Such a function could use RESET ROLE to get the rights of this session's role. A load drops no such foreign key.
    """
    columns = read_referring_columns(change.record["definition"])
    for cast in fetch_rows(connection, "changes/casts", CastRow, oid=change.relation_oid, columns=columns):
        raise TargetError(
            f'cannot rebuild foreign key "{change.name}": it would run functions of "{cast.owner}"',
            detail=f'They cast values of column "{cast.column}".',
            hint=f"Run {compose_forget(change)}, and add it by hand.",
        )


def _column_changed(change: Change, name: str, *, was: str, now: str | None) -> TargetError:
    return TargetError(
        f'cannot rebuild {change.kind} "{change.name}" of table "{change.target}": column "{name}" was changed',
        detail=f"Its type was {was}, and is now {now or 'none'}.",
        hint=f"Run {compose_forget(change)}, and create it by hand.",
    )


def table_of(parts: TableParts) -> tuple[str, str]:
    """Return the table's schema and name."""
    return parts.table.schema, parts.table.name


def add_marks(connection: Connection, parts: TableParts, index: IndexRow, constraint: ConstraintRow | None) -> None:
    """Set what CREATE INDEX cannot set of an index: CLUSTER mark, replica identity, statistics, comments."""
    for statement in compose_index_marks(index, constraint, table_of(parts)):
        execute_one(connection, statement)


def execute_one(connection: Connection, statement: sql.Composed) -> None:
    """Run a statement that was composed from a record. If the text has a second statement, the server refuses it."""
    # `binary` makes psycopg use the extended protocol, which refuses a text with a second statement.
    connection.execute(statement, binary=True)


def end_change(connection: Connection, schema: str, change: Change) -> None:
    """Check that the object of a change is as recorded, and remove the record.

    The record stays if the object must still be attached to its parent. Raises TargetError if the object differs.
    """
    state = look_at(capture_for(connection, change), change)
    if state == "made":
        # Keep the record. It is removed when the object is attached to its parent.
        return
    if state != "there":
        raise TargetError(
            f'{change.kind} "{change.name}" of table "{change.target}" was rebuilt differently from its record',
            detail="It was dropped again.",
            hint="Please report this with the output of pg_dump --schema-only for the table.",
        )
    delete_changes(connection, schema, [change])
    _log.info('restored %s "%s" of %s', change.kind, change.name, change.target)


@slotted
class PartitionRow:
    """The row of partitions.sql: a direct partition of a table."""

    oid: int
    schema: str
    name: str
    is_foreign: bool


@slotted
class AttachedRow:
    """The row of attached.sql: a partition's index or foreign key that is attached to one of the parent table."""

    relation_oid: int
    name: str
    is_foreign_key: bool


def make_parent_index(connection: Connection, schema: str, change: Change, children: Sequence[Change]) -> None:
    """Create the index of a partitioned table, attach its partitions' indexes, and remove the records of all these.

    `children` are the records of the partitions' indexes that were attached before; these indexes exist. The record of
    the created index stays if the index must itself be attached to a parent. Adding a constraint locks the table, and
    attaching an index locks that index, so call this function within with_lock_retries. Raises DataError if rows of a
    partition that was added since violate the index, TargetError, ServerError.
    """
    index, constraint = read_index_record(change)
    names = {child.relation_oid: child.name for child in children}
    with restoring(connection, change) as parts:
        check_columns(parts, change)
        with local_settings(connection, default_tablespace=index.tablespace):
            # The index becomes valid when the indexes of all partitions are attached. Its lock keeps partitions from
            # being attached or detached.
            execute_one(connection, compose_parent_index(index, constraint, table_of(parts)))
            parent = sql.Identifier(parts.table.schema, change.name)
            for partition in fetch_rows(connection, "changes/partitions", PartitionRow, oid=parts.table.oid):
                if partition.is_foreign:
                    raise _has_no_index(change, partition)
                if partition.oid in names:
                    _attach(connection, parent, sql.Identifier(partition.schema, names[partition.oid]))
                else:
                    _adopt(connection, parent, partition, index, constraint)
        add_marks(connection, parts, index, constraint)
        end_change(connection, schema, change)
    _end_children(connection, schema, change, children)


def add_parent_key(connection: Connection, schema: str, change: Change, children: Sequence[Change]) -> None:
    """Add a foreign key to a partitioned table, and remove the records of its partitions' keys.

    `children` are the records of the partitions' keys, which exist and become attached. The server checks the rows of
    partitions that were added since. Call this function within with_lock_retries. Raises DataError if such a row
    violates the key, TargetError, ServerError.
    """
    add_foreign_key(connection, schema, change)
    _end_children(connection, schema, change, children)


def _attach(connection: Connection, parent: sql.Identifier, child: sql.Identifier) -> None:
    execute_one(connection, sql.SQL("ALTER INDEX {} ATTACH PARTITION {}").format(parent, child))


def _adopt(
    connection: Connection,
    parent: sql.Identifier,
    partition: PartitionRow,
    index: IndexRow,
    constraint: ConstraintRow | None,
) -> None:
    """Attach an index of the partition if the server accepts it as equal to the parent's. Otherwise create one."""
    before = fetch_rows(connection, "changes/indexes", IndexFacts, oid=partition.oid)
    for own in before:
        is_free = own.is_valid and own.parent is None
        if is_free and _try_to_attach(connection, parent, sql.Identifier(partition.schema, own.name)):
            return
    table = sql.Identifier(partition.schema, partition.name)
    # Without a name, the server chooses the name, as it does for a new partition.
    if constraint is None:
        make = compose_create_index(index, table, sql.SQL(""))
    else:
        make = sql.SQL("ALTER TABLE {} ADD {}").format(table, sql.SQL(constraint.definition))
    execute_one(connection, make)
    names = {own.name for own in before}
    after = fetch_rows(connection, "changes/indexes", IndexFacts, oid=partition.oid)
    (made,) = [own.name for own in after if own.name not in names]
    _attach(connection, parent, sql.Identifier(partition.schema, made))


def _try_to_attach(connection: Connection, parent: sql.Identifier, child: sql.Identifier) -> bool:
    try:
        with in_transaction(connection):
            _attach(connection, parent, child)
    except (errors.InvalidObjectDefinition, errors.ObjectNotInPrerequisiteState):
        return False
    return True


def _end_children(connection: Connection, schema: str, change: Change, children: Sequence[Change]) -> None:
    """Remove the records of attached objects, in the same transaction. Raises TargetError if one is not attached."""
    oid, name = part_id_of(change)
    with translate_errors("reading what is attached"):
        found = fetch_rows(connection, "changes/attached", AttachedRow, oid=oid, name=name)
        partitions = {row.oid for row in fetch_rows(connection, "changes/partitions", PartitionRow, oid=oid)}
    attached = {(row.relation_oid, row.name) for row in found if row.is_foreign_key == is_foreign_key(change)}
    for child in children:
        # A child whose table was detached need not be attached.
        if child.relation_oid in partitions and part_id_of(child) not in attached:
            raise TargetError(
                f'{child.kind} "{child.name}" was not attached to "{change.name}" of table "{change.target}"',
                detail="The partitioned table's was dropped again.",
                hint="Please report this with the output of pg_dump --schema-only for the table.",
            )
    drop_records(connection, schema, children)


def _has_no_index(change: Change, partition: PartitionRow) -> TargetError:
    name = f"{partition.schema}.{partition.name}"
    return TargetError(
        f'cannot rebuild {change.kind} "{change.name}" of table "{change.target}": partition {name} is a foreign '
        "table, which has no index",
        hint="Detach it, run penstock repair and attach it again.",
    )
