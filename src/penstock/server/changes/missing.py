"""Finds indexes and keys that tables lack because a rebuild failed. Such a table is not loaded until it is repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.errors import TargetError
from penstock.model.load.shape import Change, Missing
from penstock.server.changes.look import look_at
from penstock.server.changes.parts import PART_KINDS, PartId, capture_for, is_foreign_key, parent_id_of, part_id_of
from penstock.server.changes.records import read_changes
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.ledger.schema import has_ledger

_INSUFFICIENT_PRIVILEGE = "42501"


def refuse_missing(connection: Connection, schema: str, oids: Sequence[int]) -> None:
    """Raise TargetError if the tables lack an index or key because a rebuild failed.

    The caller has checked that the ledger exists. Raises ServerError.
    """
    try:
        found = _describe_all(_find_failed(connection, schema, oids))
    except TargetError as error:
        if error.sqlstate != _INSUFFICIENT_PRIVILEGE:
            raise
        # A role that may not read the ledger cannot load, and a later check reports that.
        return
    for missing in found:
        raise TargetError(
            f'table "{missing.table}" lacks {", ".join(missing.names)} because a rebuild failed',
            detail=missing.why,
            hint="Remove the rows that violate it and run penstock repair, or forget what is "
            "missing with penstock repair --forget-missing NAME; until then nothing is loaded into the table.",
        )


def find_missing(connection: Connection, schema: str) -> list[Missing]:
    """Return what tables lack because a rebuild failed. Raises ServerError, TargetError.

    An index or key that somebody has created by hand is not missing.
    """
    return _describe_all(read_failed(connection, schema))


def read_failed(connection: Connection, schema: str) -> list[list[Change]]:
    """Return the records of what each table lacks because a rebuild failed. Raises the same as `find_missing`."""
    return _find_failed(connection, schema) if has_ledger(connection, schema) else []


def _describe_all(failed: Iterable[Sequence[Change]]) -> list[Missing]:
    return [
        Missing(
            table=str(missing[0].target),
            names=tuple(_describe(family[0]) for family in group_attached(missing)),
            why="\n".join(change.failure for change in missing if change.failure is not None),
        )
        for missing in failed
    ]


def _find_failed(connection: Connection, schema: str, oids: Sequence[int] | None = None) -> list[list[Change]]:
    changes = [change for change in read_changes(connection, schema) if not change.is_copied]
    failed = {change.target_oid for change in changes if change.failure is not None}
    if failed and oids is not None:
        trees = (
            "SELECT p.relid::oid FROM pg_catalog.unnest(%s::oid[]) AS o (id), pg_catalog.pg_partition_tree(o.id) AS p"
        )
        with translate_errors("looking up the partitions of tables"):
            loaded = {oid for (oid,) in connection.execute(trees, [list(oids)])}.union(oids)
        # Include tables with foreign keys that wait, because a foreign key of another table needs the key that it
        # refers to.
        failed &= {
            change.target_oid for change in changes if change.target_oid in loaded or change.relation_oid in oids
        }
    found = [read_missing(connection, schema, oid) for oid in sorted(failed)]
    return [missing for missing in found if any(change.failure is not None for change in missing)]


def group_attached(
    changes: Sequence[Change], *, is_alike: Callable[[Change, Change], bool] = lambda *_: True
) -> list[list[Change]]:
    """Return changes in groups: a change, then the changes of attached parts of partitions for which `is_alike`."""
    families = [[change] for change in changes]
    numbers = {(each.kind, part_id_of(each)): number for number, each in enumerate(changes) if each.kind in PART_KINDS}
    # The records of partitions come after those of their parent.
    for number in reversed(range(len(changes))):
        parent = _parent_id_of(changes[number])
        found = None if parent is None else numbers.get((changes[number].kind, parent))
        if found is not None and found != number and is_alike(changes[number], changes[found]):
            families[found] += families[number]
            families[number] = []
    return [family for family in families if family]


def read_missing(connection: Connection, schema: str, target_oid: int) -> list[Change]:
    """Return the records of parts that loads of a table have dropped and that are missing now.

    Raises ServerError, TargetError.
    """
    changes = [change for change in read_changes(connection, schema, target_oid=target_oid) if not change.is_copied]
    return [change for change in changes if change.kind in PART_KINDS and not _stands(connection, change)]


def _stands(connection: Connection, change: Change) -> bool:
    try:
        return look_at(capture_for(connection, change), change) in ("gone", "there")
    except TargetError:
        # Another object has its name, or the columns of the object have changed.
        return False


def _parent_id_of(change: Change) -> PartId | None:
    try:
        return parent_id_of(change)
    except TargetError:
        return None


def _describe(change: Change) -> str:
    if not is_foreign_key(change):
        return f'{change.kind} "{change.name}"'
    # A foreign key that was added but not validated is enforced for new rows. Only its validity is missing.
    of_other = f' of "{change.relation}"' if change.kind == "reference" else ""
    return f'valid foreign key "{change.name}"{of_other}'
