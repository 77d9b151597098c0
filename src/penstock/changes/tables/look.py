"""Compares records with the catalogue: whether an object exists, is half rebuilt, or is missing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from penstock.changes.records import read_changes
from penstock.changes.tables.definition import ConstraintRow, IndexRow
from penstock.changes.tables.parts import (
    PART_KINDS,
    ForeignKey,
    IndexPart,
    PartId,
    TableParts,
    capture_for,
    check_foreign_key_record,
    compose_forget,
    is_foreign_key,
    malformed_record,
    parent_id_of,
    part_id_of,
    read_index_record,
)
from penstock.changes.values import Change, Missing
from penstock.core.catalogue.catalog import read_partition_line
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import TargetError
from penstock.ledger.lookup import OtherLedger, can_trust
from penstock.ledger.schema import has_ledger

# The state of a record's object. gone: the table does not exist. there: the object exists as before. begun: the index
# exists but its constraint or properties are missing, or the foreign key is not validated. made: the partition's object
# exists but is not attached. absent: the object does not exist.
State = Literal["gone", "there", "begun", "made", "absent"]


def look_at(parts: TableParts | None, change: Change) -> State:
    """Return the state of the index or key that a change has dropped.

    "gone": its table does not exist. "absent": it does not exist. "begun": it exists, but a part of it is missing.
    "made": it exists, but is not attached to its parent. "there": it exists as before.

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
    """Return the error for a record that came with a dump of another database, and whose table does not exist here."""
    return TargetError(
        f'the record of {change.kind} "{change.name}" of table "{change.target}" came with a dump of another database',
        detail="It identifies tables by oid, which may be other tables here, and does not name a table that exists.",
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
    # A foreign key over the same columns by another unique index is the same foreign key: if several match, the server
    # takes the one with the lowest OID when the key is added.
    ignored = {"parent": None, "references_index": None}
    if now | ignored == {**change.record, **ignored}:
        return _there_or_made(parts, found, change)
    # The foreign key exists, but is not validated.
    same = {"is_validated", "definition", "comment", "columns", *ignored}
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
                hint="Drop what was created on the partitioned table and run penstock repair, or run "
                f"{compose_forget(change)}.",
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
        hint=f"Rename or drop it, and run penstock repair; to keep it, run {compose_forget(change)}.",
    )


_INSUFFICIENT_PRIVILEGE = "42501"


def refuse_missing(connection: Connection, schema: str, oids: Sequence[int] | None) -> list[Change]:
    """Raise TargetError if the tables with these OIDs lack an index or key because a rebuild failed.

    If `oids` is None, all tables of the ledger are checked. The caller has checked that the ledger exists. Return the
    records that came with a dump, for `refuse_copied`. Raises ServerError.
    """
    try:
        changes = read_changes(connection, schema)
        found = _describe_all(_find_failed(connection, schema, changes, oids))
    except TargetError as error:
        if error.sqlstate != _INSUFFICIENT_PRIVILEGE:
            raise
        # A role that may not read the ledger cannot load, and a later check reports that.
        return []
    for missing in found:
        raise TargetError(
            f'table "{missing.table}" lacks {", ".join(missing.names)} because a rebuild failed',
            detail=missing.why,
            hint="Remove the rows that violate it and run penstock repair, or forget what is "
            "missing with penstock repair --forget-missing NAME; until then nothing is loaded into the table.",
        )
    return [change for change in changes if change.is_copied]


def refuse_changed_elsewhere(connection: Connection, others: Iterable[OtherLedger], oids: Sequence[int]) -> None:
    """Raise TargetError if a load of another ledger has changed one of these tables, and has not restored it.

    Their partitions, and the tables whose partitions they are, count too. A load of this ledger would take the changed
    table for what the user has made. With --mode replace, for example, what the other load has dropped would be lost.
    This is a look, and no lock. A ledger that cannot be read, or is not trusted, is passed over. Raises ServerError.
    """
    trusted = [other for other in others if can_trust(connection, other)] if oids else []
    line = set(read_partition_line(connection, oids)) if trusted else set()
    for other in trusted:
        try:
            changes = read_changes(connection, other.schema)
        except TargetError:
            # The ledger's version has other columns, or the role may not read its changes.
            continue
        # A foreign key of another table that refers to one of these is no change of it.
        involving = [each for each in changes if not each.is_copied and line & {each.target_oid, each.relation_oid}]
        for change in involving:
            left = dict.fromkeys(describe_change(each) for each in changes if each.target_oid == change.target_oid)
            raise TargetError(
                f'table "{change.target}" is changed by load {change.load_id} of the ledger in schema "{other.schema}"',
                detail=f"Recorded as changed: {', '.join(left)}.",
                hint="Wait until that load has ended. If it has, run penstock repair --ledger-schema "
                f"{shlex.quote(other.schema)}.",
            )


def find_missing(connection: Connection, schema: str) -> list[Missing]:
    """Return which indexes and keys each table lacks because a rebuild failed. Raises ServerError, TargetError.

    An index or key that somebody has created by hand is not missing.
    """
    return _describe_all(read_failed(connection, schema))


def read_failed(connection: Connection, schema: str) -> list[list[Change]]:
    """Return the records of indexes and keys that are missing because a rebuild failed, a list for each table.

    Raises ServerError, TargetError.
    """
    return _find_failed(connection, schema, read_changes(connection, schema)) if has_ledger(connection, schema) else []


def _describe_all(failed: Iterable[Sequence[Change]]) -> list[Missing]:
    return [
        Missing(
            table=str(missing[0].target),
            names=tuple(describe_change(family[0]) for family in group_attached(missing)),
            why="\n".join(change.failure for change in missing if change.failure is not None),
        )
        for missing in failed
    ]


def _find_failed(
    connection: Connection, schema: str, everything: Sequence[Change], oids: Sequence[int] | None = None
) -> list[list[Change]]:
    changes = [change for change in everything if not change.is_copied]
    failed = {change.target_oid for change in changes if change.failure is not None}
    if failed and oids is not None:
        trees = (
            "SELECT p.relid::oid FROM pg_catalog.unnest(%s::oid[]) AS o (id), pg_catalog.pg_partition_tree(o.id) AS p"
        )
        with translate_errors("looking up the partitions of tables"):
            loaded = {oid for (oid,) in connection.execute(trees, [list(oids)])}.union(oids)
        # Also include a table that refers to a loaded table: its foreign key waits for a key of the loaded table.
        failed &= {
            change.target_oid for change in changes if change.target_oid in loaded or change.relation_oid in oids
        }
    found = [read_missing(connection, schema, oid) for oid in sorted(failed)]
    return [missing for missing in found if any(change.failure is not None for change in missing)]


def group_attached(
    changes: Sequence[Change], *, is_alike: Callable[[Change, Change], bool] = lambda *_: True
) -> list[list[Change]]:
    """Return changes in groups: a change, and the changes of the partitions' objects that were attached to its object.

    A change is in the group of its parent only if `is_alike` is true for the two changes.
    """
    families = [[change] for change in changes]
    numbers = {(each.kind, part_id_of(each)): number for number, each in enumerate(changes) if each.kind in PART_KINDS}
    # Go backwards, because the records of partitions come after those of their parent.
    for number in reversed(range(len(changes))):
        parent = _parent_id_of(changes[number])
        found = None if parent is None else numbers.get((changes[number].kind, parent))
        if found is not None and found != number and is_alike(changes[number], changes[found]):
            families[found] += families[number]
            families[number] = []
    return [family for family in families if family]


def read_missing(connection: Connection, schema: str, target_oid: int) -> list[Change]:
    """Return the records of a table's indexes and keys that loads have dropped and that do not exist now.

    Raises ServerError, TargetError.
    """
    changes = [change for change in read_changes(connection, schema, target_oid=target_oid) if not change.is_copied]
    return [change for change in changes if change.kind in PART_KINDS and not _stands(connection, change)]


def _stands(connection: Connection, change: Change) -> bool:
    try:
        return look_at(capture_for(connection, change), change) in ("gone", "there")
    except TargetError:
        # Another object has the recorded name, or the columns of the object have changed.
        return False


def _parent_id_of(change: Change) -> PartId | None:
    try:
        return parent_id_of(change)
    except TargetError:
        return None


def describe_change(change: Change) -> str:
    """Return the object of a change in words, such as index "i"."""
    if not is_foreign_key(change):
        return f'{change.kind} "{change.name}"'
    # A foreign key that was added but not validated is enforced for new rows. Only its validity is missing.
    of_other = f' of "{change.relation}"' if change.kind == "reference" else ""
    return f'valid foreign key "{change.name}"{of_other}'
