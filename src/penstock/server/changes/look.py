"""How far what a record tells of is there, as the catalogue has it now. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from penstock.errors import TargetError
from penstock.server.changes.parts import (
    check_foreign_key_record,
    is_foreign_key,
    parent_of,
    place_of,
    read_index_record,
    spoilt_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.model.load.shape import Change
    from penstock.server.changes.parts import ForeignKey, IndexPart, TableParts
    from penstock.server.ddl.definition import ConstraintRow, IndexRow

# gone: the table is no more. there: it exists as before. begun: an index stands and the rest is to be added, or a
# foreign key is to be validated. made: a partition's stands, and is to be attached. absent: it is to be made.
State = Literal["gone", "there", "begun", "made", "absent"]


def look_at(parts: TableParts | None, change: Change) -> State:
    """Return how far what a record tells of is there.

    `parts` are those of the table at which it is, None where that is gone. Raises TargetError where a thing of that
    name is there that is another, where columns are not what they were, and where the record is not whole.
    """
    if is_foreign_key(change):
        check_foreign_key_record(change)
        return _look_at_foreign_key(parts, change)
    if change.kind not in ("index", "constraint"):
        raise spoilt_record(change)
    index, constraint = read_index_record(change)
    if parts is None:
        return "gone"
    found = parts.index(change.name)
    _check_not_replaced(parts, parts.indexes, change)
    if found is None:
        return "absent"
    # What is added to an index afterwards does not count.
    if found.row is not None and _bare(found.row) == _bare(index):
        if found.constraint == constraint and found.row == index:
            return _there_or_made(parts, found, change)
        # Made, and what belongs to it not yet: its constraint, its mark of CLUSTER.
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
    found = next((key for key in parts.foreign_keys if key.place == place_of(change)), None)
    _check_not_replaced(parts, parts.foreign_keys, change)
    if found is None:
        return "absent"
    now = found.record()
    if now | {"parent": None} == {**change.record, "parent": None}:
        return _there_or_made(parts, found, change)
    # Added, and not validated yet.
    same = {"is_validated", "definition", "comment", "columns", "parent"}
    if all(now[key] == value for key, value in change.record.items() if key not in same) and not found.is_validated:
        return "begun"
    raise _is_another(change)


def _there_or_made(parts: TableParts, found: IndexPart | ForeignKey, change: Change) -> State:
    """Return whether nothing is left to do: a table that was detached meanwhile keeps what it has as its own."""
    parent = parent_of(change)
    is_attached = parent is None or found.parent_place == parent
    is_partition = parent is not None and parts.table.parent_oid == parent[0]
    return "there" if is_attached or not is_partition else "made"


def _check_not_replaced(parts: TableParts, found: Iterable[IndexPart | ForeignKey], change: Change) -> None:
    """Raise TargetError where a partition has another index, or foreign key, attached in the place of the record's."""
    parent = parent_of(change)
    if parent is None:
        return
    for part in found:
        if part.parent_place == parent and part.name != change.name and parts.table.oid == change.relation_oid:
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
