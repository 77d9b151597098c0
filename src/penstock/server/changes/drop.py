"""Drops indexes, keys and foreign keys of a table and its partitions, after they have been recorded."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import TargetError
from penstock.server.changes.look import look_at
from penstock.server.changes.parts import (
    ForeignKey,
    IndexPart,
    PartId,
    TableParts,
    capture_tree,
    is_foreign_key,
    lock_relation,
    part_id_of,
)
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.ddl.session import run_all

if TYPE_CHECKING:
    from penstock.model.load.shape import Change
    from penstock.server.changes.kind import TableRequest

_log = logging.getLogger(__name__)


def make_changes(
    parts: TableParts, request: TableRequest, *, indexes: Iterable[IndexPart], foreign_keys: Iterable[ForeignKey]
) -> list[Change]:
    """Return the records of what will be dropped: foreign keys first, since they depend on indexes."""
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
        changes.append(request.change(kind, part.name, part.record(), relation_oid=part.facts.relation_oid))
    return changes


def drop_parts(connection: Connection, target_oid: int, changes: Sequence[Change]) -> None:
    """Lock a table and drop the objects of the changes, in the caller's transaction.

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
        # Dropping the parent would also drop this part, which has no record.
        if part.parent_id in places and part.part_id not in places:
            raise _altered(part.name, found.table.quoted_name)
    _log.info("dropping %d indexes and keys of %s", len(changes), found.table.quoted_name)
    with translate_errors(f"dropping indexes of {found.table.quoted_name}"):
        run_all(connection, _compose_drops(found, changes, places))


def _check_unchanged(found: TableParts, change: Change) -> None:
    """Raise TargetError if an object differs from its record, unless only the rest of its rebuild is missing."""
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
            # _check_unchanged has compared this text with the name that the server returned.
            yield drop.format(sql.SQL(change.record["relation"]), name)
            continue
        table = found.tables[change.relation_oid].table
        if part.constraint is None:
            yield sql.SQL("DROP INDEX {}").format(sql.Identifier(table.schema, change.name))
        else:
            yield drop.format(sql.Identifier(table.schema, table.name), name)
