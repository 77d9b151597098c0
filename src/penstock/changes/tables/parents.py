"""Rebuilds the indexes and foreign keys of partitioned tables from those that their partitions have.

No rows are read if all partitions have the index or foreign key. A partition that was added during the load gets the
index or foreign key here, as if the parent's had existed when the partition was added: an equal index of the partition
is attached, or a new one is created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from psycopg import errors, sql

from penstock.changes.tables.definition import (
    ConstraintRow,
    IndexRow,
    compose_create_index,
    compose_parent_index,
    local_settings,
)
from penstock.changes.tables.parts import IndexFacts, is_foreign_key, part_id_of, read_index_record
from penstock.changes.tables.rebuild import (
    add_foreign_key,
    add_marks,
    check_columns,
    drop_records,
    end_change,
    execute_one,
    restoring,
    table_of,
)
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows

if TYPE_CHECKING:
    from penstock.changes.values import Change


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
