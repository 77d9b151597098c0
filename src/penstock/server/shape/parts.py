"""The indexes, keys and foreign keys of a table, as they are now and as a record has them.

A record is what is needed to make a part again: the rows that ddl captures, never a statement. What a part depends on
is written down with it, so that a table that was altered meanwhile is noticed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import TargetError
from penstock.server.ddl.definition import ConstraintRow, IndexRow
from penstock.server.ddl.session import qualified_names
from penstock.server.errors import translate_errors
from penstock.server.queries import send_query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model.shape import Change
    from penstock.server.connection import Connection

_Row = TypeVar("_Row", IndexRow, ConstraintRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTable:
    """The row of shape_table.sql; `kind` and `replica_identity` are pg_class's letters."""

    oid: int
    schema: str
    name: str
    quoted_name: str
    kind: str
    owner: str
    is_owner: bool
    may_create: bool
    replica_identity: str
    is_published: bool
    columns: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFacts:
    """The row of shape_indexes.sql; `columns` are the types of those that it depends on."""

    name: str
    method: str
    is_valid: bool
    is_primary: bool
    is_attached: bool
    is_partial: bool
    may_use_tablespace: bool
    key_columns: list[str]
    columns: dict[str, str]
    width_bytes: int
    dependents: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """The row of shape_foreign_keys.sql; `references_index` is the name of the unique index that it relies on."""

    name: str
    relation_oid: int
    relation: str
    references_oid: int
    references: str
    references_index: str | None
    definition: str
    is_deferrable: bool
    is_deferred: bool
    is_validated: bool
    is_enforced: bool
    comment: str | None
    is_kept_whole: bool
    owner: str
    is_owner: bool
    may_refer: bool
    has_altered_triggers: bool
    columns: dict[str, str]

    @property
    def is_self_reference(self) -> bool:
        """Whether it refers to its own table."""
        return self.relation_oid == self.references_oid

    def record(self) -> dict[str, Any]:
        """Return what is written down of it."""
        return {name: getattr(self, name) for name in _FOREIGN_KEY_RECORD}


# What makes a foreign key what it is; who may do what with it is no part of it.
_FOREIGN_KEY_RECORD = (
    "relation",
    "references_oid",
    "references",
    "references_index",
    "definition",
    "is_deferrable",
    "is_deferred",
    "is_validated",
    "is_enforced",
    "comment",
    "columns",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPart:
    """An index with the constraint that it is of; `row` is None where it is not valid, and so cannot be made again."""

    facts: IndexFacts
    row: IndexRow | None
    constraint: ConstraintRow | None

    @property
    def name(self) -> str:
        """Return the index's name, and the constraint's."""
        return self.facts.name

    def record(self) -> dict[str, Any]:
        """Return what is written down of it."""
        assert self.row is not None
        return {
            "index": asdict(self.row),
            "constraint": None if self.constraint is None else asdict(self.constraint),
            "columns": dict(self.facts.columns),
            "method": self.facts.method,
            "width_bytes": self.facts.width_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """What of a table can be parked."""

    table: ShapeTable
    indexes: tuple[IndexPart, ...]
    foreign_keys: tuple[ForeignKey, ...]

    def index(self, name: str) -> IndexPart | None:
        """Return the index of that name, or None."""
        return next((part for part in self.indexes if part.name == name), None)


def capture_parts(connection: Connection, oid: int) -> TableParts | None:
    """Return the indexes, keys and foreign keys of a table, None where the table is gone; three round trips.

    They are one state of the catalogue only where the caller holds a lock on the table. Raises TargetError where the
    server describes an index otherwise than we read, ServerError.
    """
    with translate_errors("reading a table's indexes and keys"), qualified_names(connection):
        with connection.pipeline():
            tables = send_query(connection, "shape_table", ShapeTable, oid=oid)
            facts = send_query(connection, "shape_indexes", IndexFacts, oid=oid)
            rows = send_query(connection, "ddl_indexes", IndexRow, oid=oid)
            constraints = send_query(connection, "ddl_constraints", ConstraintRow, oid=oid)
            foreign_keys = send_query(connection, "shape_foreign_keys", ForeignKey, oid=oid)
        found = tables()
        if not found:
            return None
        by_name = {row.name: row for row in rows()}
        keys = {constraint.name: constraint for constraint in constraints() if constraint.kind in "pux"}
        indexes = [_join(each, by_name.get(each.name), keys) for each in facts()]
        return TableParts(table=found[0], indexes=tuple(indexes), foreign_keys=tuple(foreign_keys()))


def _join(facts: IndexFacts, row: IndexRow | None, keys: Mapping[str, ConstraintRow]) -> IndexPart:
    if row is not None and row.body is None:
        raise TargetError(
            f'cannot read the definition of index "{facts.name}"',
            hint="Please report this with the output of pg_dump --schema-only for the table; --indexes keep goes on.",
        )
    name = None if row is None else row.constraint_name
    return IndexPart(facts=facts, row=row, constraint=None if name is None else keys[name])


def read_index_record(change: Change) -> tuple[IndexRow, ConstraintRow | None]:
    """Return the index, and its constraint, that a record tells of. Raises TargetError where it is not whole."""
    index = _read_row(change, "index", IndexRow)
    constraint = None if change.record.get("constraint") is None else _read_row(change, "constraint", ConstraintRow)
    is_whole = index.name == change.name and index.body is not None and isinstance(change.record.get("columns"), dict)
    is_key = constraint is not None
    if not is_whole or is_key != (change.kind == "constraint") or (constraint and constraint.name != change.name):
        raise spoilt_record(change)
    return index, constraint


def check_foreign_key_record(change: Change) -> None:
    """Raise TargetError where a foreign key's record is not whole."""
    if set(change.record) != set(_FOREIGN_KEY_RECORD):
        raise spoilt_record(change)


def is_foreign_key(change: Change) -> bool:
    """Whether a record tells of a foreign key."""
    return change.kind == "reference" or (change.kind == "constraint" and "references_oid" in change.record)


def spoilt_record(change: Change) -> TargetError:
    """Return the error for a record that does not tell what it should."""
    return TargetError(
        f'the record of {change.kind} "{change.name}" of table "{change.target}" is not what penstock wrote',
        detail=f"It is number {change.number} of table oid {change.target_oid} in the ledger's table changes.",
        hint="Make the index or constraint by hand, and delete the record.",
    )


def _read_row(change: Change, key: str, row_type: type[_Row]) -> _Row:
    found = change.record.get(key)
    if not isinstance(found, dict) or set(found) != {field.name for field in fields(row_type)}:
        raise spoilt_record(change)
    return row_type(**found)
