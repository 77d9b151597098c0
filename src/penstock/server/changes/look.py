"""Compares a record with the catalogue: whether its object exists, is half rebuilt, or is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from penstock.errors import TargetError
from penstock.server.changes.parts import (
    ForeignKey,
    IndexPart,
    TableParts,
    check_foreign_key_record,
    is_foreign_key,
    malformed_record,
    parent_id_of,
    part_id_of,
    read_index_record,
)

if TYPE_CHECKING:
    from penstock.model.load.shape import Change
    from penstock.server.ddl.definition import ConstraintRow, IndexRow

# gone: the table does not exist. there: the object exists as before. begun: the index exists but its constraint or
# properties are missing, or the foreign key is not validated. made: the partition's object exists but is not attached.
# absent: the object does not exist.
State = Literal["gone", "there", "begun", "made", "absent"]


def look_at(parts: TableParts | None, change: Change) -> State:
    """Return the state of the object of a record.

    `parts` are the parts of the object's table, None if the table does not exist. Raises TargetError if another object
    has the recorded name, if columns have changed, or if the record is malformed.
    """
    if is_foreign_key(change):
        check_foreign_key_record(change)
        return _look_at_foreign_key(parts, change)
    if change.kind not in ("index", "constraint"):
        raise malformed_record(change)
    index, constraint = read_index_record(change)
    if parts is None:
        return "gone"
    found = parts.index(change.name)
    _check_not_replaced(parts, parts.indexes, change)
    if found is None:
        return "absent"
    # The comparison ignores what is added after CREATE INDEX: constraint, CLUSTER mark, comment and so on.
    if found.row is not None and _bare(found.row) == _bare(index):
        if found.constraint == constraint and found.row == index:
            return _there_or_made(parts, found, change)
        # The index exists, but its constraint, its CLUSTER mark or another property is missing.
        if found.constraint is None or _without_comment(found.constraint) == _without_comment(constraint):
            return "begun"
    raise _is_another(change)


def copied_record(change: Change) -> TargetError:
    """Return the error for a record that came with a dump."""
    return TargetError(
        f'the record of {change.kind} "{change.name}" of table "{change.target}" came with a dump of another database',
        detail="It identifies tables by oid, which may be other tables here.",
        hint=f"Create what is missing by hand, and delete record {change.number} of table oid {change.target_oid} from "
        "the ledger's table changes.",
    )


def _look_at_foreign_key(parts: TableParts | None, change: Change) -> State:
    if parts is None:
        return "gone"
    found = next((key for key in parts.foreign_keys if key.part_id == part_id_of(change)), None)
    _check_not_replaced(parts, parts.foreign_keys, change)
    if found is None:
        return "absent"
    now = found.record()
    if now | {"parent": None} == {**change.record, "parent": None}:
        return _there_or_made(parts, found, change)
    # The foreign key exists, but is not validated.
    same = {"is_validated", "definition", "comment", "columns", "parent"}
    if all(now[key] == value for key, value in change.record.items() if key not in same) and not found.is_validated:
        return "begun"
    raise _is_another(change)


def _there_or_made(parts: TableParts, found: IndexPart | ForeignKey, change: Change) -> State:
    """Return "made" if the object must still be attached to its parent, otherwise "there".

    A table that is no longer a partition keeps the object as its own.
    """
    parent = parent_id_of(change)
    is_attached = parent is None or found.parent_id == parent
    is_partition = parent is not None and parts.table.parent_oid == parent[0]
    return "there" if is_attached or not is_partition else "made"


def _check_not_replaced(parts: TableParts, found: Iterable[IndexPart | ForeignKey], change: Change) -> None:
    """Raise TargetError if another object of the partition has taken the place of the dropped one.

    The record of `change` names the parent to which the dropped index or foreign key was attached. The error is raised
    if another index or foreign key of the partition is attached to that parent.
    """
    parent = parent_id_of(change)
    if parent is None:
        return
    for part in found:
        if part.parent_id == parent and part.name != change.name and parts.table.oid == change.relation_oid:
            raise TargetError(
                f'{parts.table.quoted_name} has "{part.name}" in the place of "{change.name}", which was dropped there',
                hint=f"Drop what was created on the partitioned table and run penstock repair, or delete record "
                f"{change.number} of table oid {change.target_oid} from the ledger's table changes.",
            )


def _bare(index: IndexRow) -> IndexRow:
    return replace(
        index, constraint_name=None, is_clustered=False, is_replica_identity=False, statistics_targets=[], comment=None
    )


def _without_comment(constraint: ConstraintRow | None) -> ConstraintRow | None:
    return None if constraint is None else replace(constraint, comment=None)


def _is_another(change: Change) -> TargetError:
    return TargetError(
        f'"{change.name}" of table "{change.target}" is not the one that was dropped',
        hint="Rename or drop it, and run penstock repair; to keep it, delete record "
        f"{change.number} of table oid {change.target_oid} from the ledger's table changes.",
    )
