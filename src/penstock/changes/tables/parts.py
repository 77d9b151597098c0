"""Reads the indexes, keys and foreign keys of a table from the catalogue, and from records of changes.

A record has what is needed to create a part again: the rows of its definition (changes/tables/definition.py), never a
statement. The columns that a part depends on are recorded too, so that a later ALTER TABLE is detected.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Literal, TypeVar

from psycopg import sql

from penstock.changes.tables.definition import ConstraintRow, IndexRow, UnreadDefinition, look_again
from penstock.changes.values import Change
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import send_query
from penstock.core.values.options import quote_name

# Matches one token of the server's scanner (src/backend/parser/scan.l). standard_conforming_strings is on, as in all
# sessions of penstock. A text that has dollar quotes, parameters, unquoted identifiers that are not ASCII, or line ends
# elsewhere than before the words of CASE, does not match, so it is refused: the server writes none of these into
# definitions. (A string could continue after a line end.) A comment matches, and is_one_clause refuses it.
_TOKEN = re.compile(
    r"""
    [eE]'(?:[^'\\]|\\.|'')*'
  | '[^']*'
  | "[^"]*"
  | [A-Za-z_][A-Za-z0-9_$]*
  | [0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_$.])
  | (?P<open>[(\[])
  | (?P<close>[)\]])
  | (?P<separator>,)
  | (?P<comment>--|/\*)
  | [-+*/<>=~!@\#%^&|`?:.]
  | [ ]+
  | \n[ ]*(?=(?:CASE|WHEN|ELSE|END)\b)
    """,
    re.VERBOSE | re.DOTALL,
)


# A foreign key as pg_get_constraintdef in src/backend/utils/adt/ruleutils.c writes it.
_NAME = r'(?:"(?:[^"]|"")+"|[a-z_][a-z0-9_]*)'
_COLUMNS = rf"\((?:PERIOD )?{_NAME}(?:, (?:PERIOD )?{_NAME})*\)"
_ACTION = "(?:NO ACTION|RESTRICT|CASCADE|SET NULL|SET DEFAULT)"
_FOREIGN_KEY = re.compile(
    rf"FOREIGN KEY (?P<columns>{_COLUMNS}) REFERENCES {_NAME}(?:\.{_NAME})?{_COLUMNS}(?: MATCH (?:FULL|PARTIAL))?"
    rf"(?: ON UPDATE {_ACTION})?(?: ON DELETE {_ACTION}(?: {_COLUMNS})?)?"
    "(?: DEFERRABLE)?(?: INITIALLY DEFERRED)?(?: NOT ENFORCED)?(?: NOT VALID)?"
)


def read_referring_columns(definition: object) -> list[str] | None:
    """Return the columns of a foreign key, quoted as in its definition; None if the text is not one foreign key.

    >>> read_referring_columns('FOREIGN KEY (a, "B, c") REFERENCES s.t(a, b) ON DELETE CASCADE')
    ['a', '"B, c"']
    >>> read_referring_columns("FOREIGN KEY (a) REFERENCES t(a), ADD COLUMN b int DEFAULT f()")
    """
    match = _FOREIGN_KEY.fullmatch(definition) if isinstance(definition, str) else None
    return None if match is None else re.findall(rf"(?:PERIOD )?({_NAME})", match["columns"])


def is_one_clause(text: object, head: str) -> bool:
    r"""Return whether a text of the catalogue begins with `head` and is one clause, so it hides no other statement.

    >>> is_one_clause("EXCLUDE USING gist (a WITH =, b WITH &&)", "EXCLUDE ")
    True
    >>> is_one_clause("EXCLUDE USING gist ((\nCASE\n    WHEN a THEN b\nEND) WITH &&)", "EXCLUDE ")
    True
    >>> is_one_clause("EXCLUDE USING gist (a WITH =), ADD COLUMN b int DEFAULT f()", "EXCLUDE ")
    False
    """
    if not isinstance(text, str) or not text.startswith(head):
        return False
    depth = position = 0
    while match := _TOKEN.match(text, position):
        kind, position = match.lastgroup, match.end()
        depth += (kind == "open") - (kind == "close")
        if depth < 0 or kind == "comment" or (kind == "separator" and depth == 0):
            return False
    return depth == 0 and position == len(text)


_Row = TypeVar("_Row", IndexRow, ConstraintRow)
_Part = TypeVar("_Part", "IndexPart", "ForeignKey")

# The kinds of the records of this module.
PART_KINDS = frozenset(("index", "constraint", "reference"))

# The table's OID and the name of the part. The name alone is not enough, because partitions can be in several schemas
# and have indexes of the same name.
PartId = tuple[int, str]

What = Literal["all", "indexes", "foreign keys"]


@slotted
class ShapeTable:
    """The row of table.sql: a table whose indexes and keys may be dropped, with its owner, rights and publications."""

    oid: int
    schema: str
    name: str
    quoted_name: str
    # pg_class.relkind.
    kind: str
    owner: str
    is_owner: bool
    # Whether the role has CREATE on the table's schema.
    may_create: bool
    # The table of which this table is a partition, None if it is not a partition.
    parent_oid: int | None
    # pg_class.relreplident.
    replica_identity: str
    # Whether a publication publishes the table or a parent of it.
    is_published: bool
    # The types of the table's columns, by name.
    columns: dict[str, str]
    # The size of the server's lock table.
    lock_count: int


@slotted
class IndexFacts:
    """The row of indexes.sql: an index, whether it can be dropped, and what must exist to build it again."""

    relation_oid: int
    oid: int
    name: str
    # pg_am.amname, such as btree.
    method: str
    is_valid: bool
    is_primary: bool
    # The table of the parent index, None if the index is not attached.
    parent_oid: int | None
    # The index to which this index of a partition is attached, None if it is not attached.
    parent: str | None
    is_partial: bool
    # Whether the role may create an index in the index's tablespace.
    may_use_tablespace: bool
    # Whether building the index runs functions outside pg_catalog that set no search_path, and so may need the
    # search_path of the user.
    runs_functions: bool
    # The names of the key columns, empty for an expression.
    key_columns: list[str]
    # The types of the columns that the index depends on, by name.
    columns: dict[str, str]
    # The approximate width of an entry: a type without a fixed width counts 24 bytes.
    width_bytes: int
    # Descriptions of the objects, other than foreign keys, that would be dropped with the index.
    dependents: list[str]


@slotted
class ForeignKey:
    """The row of foreign_keys.sql: a foreign key of a table, or of another table that refers to it."""

    name: str
    relation_oid: int
    # The key's table as SQL writes it, with its schema. The next field is its pg_class.relkind.
    relation: str
    relation_kind: str
    # The referenced table.
    references_oid: int
    references: str
    # The unique index that the key depends on.
    references_index: str | None
    # The text for ADD CONSTRAINT.
    definition: str
    is_deferrable: bool
    is_deferred: bool
    is_validated: bool
    is_enforced: bool
    comment: str | None
    # Whether the key refers to a partitioned table, or is part of a key that does.
    is_kept_whole: bool
    # The table of the parent's key, None if this key is not attached.
    parent_oid: int | None
    # The foreign key to which this key of a partition is attached, None if it is not attached.
    parent: str | None
    owner: str
    is_owner: bool
    # Whether the role has REFERENCES on the referenced columns.
    may_refer: bool
    # Whether pg_trigger.tgenabled of one of the key's triggers is not 'O'.
    has_altered_triggers: bool
    # The ordinary role whose function would run to compare the key's columns, None if there is none.
    cast_owner: str | None
    # The types of the columns of both tables, by the table's OID and the column's name: OID.NAME.
    columns: dict[str, str]

    @property
    def part_id(self) -> PartId:
        """Return the foreign key's id: its table's OID and its name."""
        return self.relation_oid, self.name

    @property
    def parent_id(self) -> PartId | None:
        """Return the id of the parent's foreign key to which this key is attached, or None."""
        return make_part_id(self.parent_oid, self.parent)

    @property
    def is_self_reference(self) -> bool:
        """Whether the foreign key refers to its own table."""
        return self.relation_oid == self.references_oid

    def record(self) -> dict[str, Any]:
        """Return what `Change.record` stores about the foreign key, as JSON: enough to add it again."""
        return {name: getattr(self, name) for name in _FOREIGN_KEY_RECORD} | _parent_record(self.parent_id)


# The beginnings of constraints' definitions, as the server writes them, by pg_constraint.contype.
_KEY_HEADS = {"p": "PRIMARY KEY (", "u": "UNIQUE ", "x": "EXCLUDE "}

# The fields of a foreign key that are recorded: its definition, without owners and rights.
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


# Matches the names of types whose values are short. B-tree refuses entries of more than 2,704 bytes (BTMaxItemSize in
# nbtree.h, for pages of 8 KiB). A numeric without precision may have 131,072 digits.
_BOUNDED_TYPE = re.compile(
    r"smallint|integer|bigint|oid|real|double precision|numeric\(.*\)|money|boolean|date|uuid|pg_lsn|name|\"char\""
    r"|time(stamp)?(\(\d\))? with(out)? time zone|interval.*|inet|cidr|macaddr8?|character( varying)?\(\d{1,2}\)"
)


@slotted
class IndexPart:
    """An index, and the constraint that it serves if there is one."""

    facts: IndexFacts
    # The definition of the index, None if the index is not valid, so that it cannot be rebuilt.
    row: IndexRow | None
    constraint: ConstraintRow | None

    @property
    def name(self) -> str:
        """Return the name of the index, which is also the name of its constraint."""
        return self.facts.name

    @property
    def part_id(self) -> PartId:
        """Return the index's id: its table's OID and its name."""
        return self.facts.relation_oid, self.facts.name

    @property
    def parent_id(self) -> PartId | None:
        """Return the id of the parent's index to which this index is attached, or None."""
        return make_part_id(self.facts.parent_oid, self.facts.parent)

    @property
    def refuses_rows(self) -> bool:
        """Whether the index can reject rows: it is unique, or belongs to a constraint."""
        return self.constraint is not None or (self.row is not None and self.row.is_unique)

    @property
    def may_refuse_records(self) -> bool:
        """Whether storing a row can fail in the index.

        That is so if it can reject rows, if it evaluates an expression, and if a value may be too large for it.
        """
        facts = self.facts
        is_bounded = facts.method == "hash" or all(map(_BOUNDED_TYPE.fullmatch, facts.columns.values()))
        return self.refuses_rows or facts.is_partial or "" in facts.key_columns or not is_bounded

    def record(self) -> dict[str, Any]:
        """Return what `Change.record` stores about the index, as JSON: enough to build it again with its constraint."""
        assert self.row is not None
        return {
            "index": asdict(self.row),
            "constraint": None if self.constraint is None else asdict(self.constraint),
            "columns": dict(self.facts.columns),
            "key_columns": list(self.facts.key_columns),
            "oid": self.facts.oid,
            "method": self.facts.method,
            "width_bytes": self.facts.width_bytes,
        } | _parent_record(self.parent_id)


@slotted
class TableParts:
    """The indexes and keys of a table."""

    table: ShapeTable
    indexes: tuple[IndexPart, ...]
    foreign_keys: tuple[ForeignKey, ...]
    # The partitions of all levels, each after its parent.
    partitions: tuple[TableParts, ...] = ()

    @property
    def tables(self) -> dict[int, TableParts]:
        """Return the table and its partitions by their OIDs."""
        return {each.table.oid: each for each in (self, *self.partitions)}

    @property
    def all_indexes(self) -> list[IndexPart]:
        """Return the indexes of the table and its partitions, parents first."""
        return [part for each in self.tables.values() for part in each.indexes]

    @property
    def all_foreign_keys(self) -> list[ForeignKey]:
        """Return the foreign keys of the table and its partitions, and those that refer to them, each once."""
        keys = [key for each in self.tables.values() for key in each.foreign_keys]
        return list({key.part_id: key for key in keys}.values())

    def index(self, name: str) -> IndexPart | None:
        """Return the index with this name, or None."""
        return next((part for part in self.indexes if part.name == name), None)


def capture_tree(connection: Connection, oid: int) -> TableParts | None:
    """Return the indexes, keys and foreign keys of a table and its partitions, None if the table does not exist.

    The result is a consistent state of the catalogue only if the caller holds locks on all of these tables. The reading
    takes four round trips. Raises TargetError if the definition of an index cannot be read, ServerError.
    """
    with translate_errors("looking up a table's partitions"):
        tree = connection.execute("SELECT p.relid::oid FROM pg_catalog.pg_partition_tree(%s) AS p", [oid]).fetchall()
    found = capture_many(connection, dict.fromkeys([oid, *(relation for (relation,) in tree)]))
    root = found.pop(oid, None)
    return None if root is None else replace(root, partitions=tuple(found.values()))


def capture_for(connection: Connection, change: Change) -> TableParts | None:
    """Return the foreign keys of a change's table if its object is a foreign key, otherwise the table's indexes.

    Partitions are not included. None if the table does not exist. Raises TargetError, ServerError.
    """
    what: What = "foreign keys" if is_foreign_key(change) else "indexes"
    return capture_many(connection, [change.relation_oid], what=what).get(change.relation_oid)


def capture_many(connection: Connection, oids: Iterable[int], *, what: What = "all") -> dict[int, TableParts]:
    """Return the indexes and foreign keys of several tables, without their partitions, by the table's OID.

    `what` selects indexes or foreign keys. Tables that do not exist are skipped. Raises TargetError, ServerError.
    """
    wanted = list(oids)

    def read() -> list[TableParts]:
        with translate_errors("reading a table's indexes and keys"):
            with connection.pipeline():
                captures = [_send_capture(connection, oid, what) for oid in wanted]
            return [parts for capture in captures if (parts := capture()) is not None]

    return {parts.table.oid: parts for parts in look_again(read, connection)}


def lock_relation(
    connection: Connection, oid: int, mode: str, *, with_partitions: bool = False
) -> sql.Identifier | None:
    """Lock a table until the transaction ends. Return its name, None if it does not exist. Raises psycopg.Error."""
    row = connection.execute(
        "SELECT c.relkind = 'p', n.nspname, c.relname FROM pg_catalog.pg_class AS c"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = %s",
        [oid],
    ).fetchone()
    if row is None:
        return None
    is_partitioned, *names = row
    only = sql.SQL("" if is_partitioned and with_partitions else "ONLY ")
    relation = sql.Identifier(*names)
    connection.execute(sql.SQL("LOCK TABLE {}{} IN {} MODE").format(only, relation, sql.SQL(mode)))
    return relation


def has_table(connection: Connection, oid: int) -> bool:
    """Return whether a table still exists. Raises ServerError."""
    with translate_errors("looking for a table"):
        return connection.execute("SELECT FROM pg_catalog.pg_class WHERE oid = %s", [oid]).fetchone() is not None


def measure_tables(connection: Connection, oids: Sequence[int]) -> dict[int, int]:
    """Return the sizes of tables, without indexes and TOAST, in bytes by OID. Raises ServerError."""
    query = "SELECT c.oid, pg_catalog.pg_relation_size(c.oid) FROM pg_catalog.pg_class AS c WHERE c.oid = ANY (%s)"
    with translate_errors("looking how large tables are"):
        rows = connection.execute(query, [list(oids)]).fetchall()
    return {oid: int(size or 0) for oid, size in rows}


def _send_capture(connection: Connection, oid: int, what: What) -> Callable[[], TableParts | None]:
    tables = send_query(connection, "changes/table", ShapeTable, oid=oid)
    indexes = _send_indexes(connection, oid) if what != "foreign keys" else list
    foreign_keys = send_query(connection, "changes/foreign_keys", ForeignKey, oid=oid) if what != "indexes" else list

    def read() -> TableParts | None:
        found = tables()
        if not found:
            return None
        return TableParts(table=found[0], indexes=tuple(indexes()), foreign_keys=tuple(foreign_keys()))

    return read


def _send_indexes(connection: Connection, oid: int) -> Callable[[], list[IndexPart]]:
    facts = send_query(connection, "changes/indexes", IndexFacts, oid=oid)
    rows = send_query(connection, "changes/ddl_indexes", IndexRow, oid=oid)
    constraints = send_query(connection, "changes/ddl_constraints", ConstraintRow, oid=oid)

    def read() -> list[IndexPart]:
        by_name = {row.name: row for row in rows()}
        keys = {constraint.name: constraint for constraint in constraints() if constraint.kind in "pux"}
        return [_join(each, by_name.get(each.name), keys) for each in facts()]

    return read


def _join(facts: IndexFacts, row: IndexRow | None, keys: Mapping[str, ConstraintRow]) -> IndexPart:
    name = None if row is None else row.constraint_name
    if row is not None and (row.body is None or (name is not None and name not in keys)):
        raise UnreadDefinition(
            f'cannot read the definition of index "{facts.name}"',
            hint="Please report this with the output of pg_dump --schema-only for the table; load with --indexes keep.",
        )
    return IndexPart(facts=facts, row=row, constraint=None if name is None else keys[name])


def read_index_record(change: Change) -> tuple[IndexRow, ConstraintRow | None]:
    """Return the index that a change's record describes, and its constraint or None.

    Raises TargetError if the record is malformed.
    """
    index = _read_row(change, "index", IndexRow)
    constraint = None if change.record.get("constraint") is None else _read_row(change, "constraint", ConstraintRow)
    is_whole = index.name == change.name and isinstance(index.body, str)
    is_whole = is_whole and isinstance(change.record.get("columns"), dict)
    is_key = constraint is not None
    if not is_whole or is_key != (change.kind == "constraint") or (constraint and constraint.name != change.name):
        raise malformed_record(change)
    if constraint is not None and not is_one_clause(constraint.definition, _KEY_HEADS.get(constraint.kind, "?")):
        raise malformed_record(change)
    return index, constraint


def check_foreign_key_record(change: Change) -> None:
    """Raise TargetError if a foreign key's record is malformed."""
    record = change.record
    is_whole = set(record) - {"parent"} == set(_FOREIGN_KEY_RECORD) and type(record["references_oid"]) is int
    is_whole = (
        is_whole and isinstance(record["columns"], dict) and read_referring_columns(record["definition"]) is not None
    )
    if not is_whole:
        raise malformed_record(change)
    parent_id_of(change)


def is_foreign_key(change: Change) -> bool:
    """Whether a record is of a foreign key."""
    return change.kind == "reference" or (change.kind == "constraint" and "references_oid" in change.record)


def group_families(parts: Iterable[_Part]) -> list[tuple[_Part, ...]]:
    """Return indexes, or foreign keys, in groups of those that have the same topmost parent among `parts`.

    Each group keeps the order given, so its topmost part is first if parents come first in `parts`.
    """
    found = {part.part_id: part for part in parts}
    families: dict[PartId, list[_Part]] = {}
    for part in found.values():
        top = part
        while (parent := top.parent_id) in found and parent is not None:
            top = found[parent]
        families.setdefault(top.part_id, []).append(part)
    return [tuple(family) for family in families.values()]


def part_id_of(change: Change) -> PartId:
    """Return the id of the index or foreign key that a change describes: its table's OID and its name."""
    return change.relation_oid, change.name


def parent_id_of(change: Change) -> PartId | None:
    """Return the id of the parent to which a changed index or foreign key was attached, or None if it had no parent.

    Raises TargetError if the change's record is malformed.
    """
    parent = change.record.get("parent")
    if parent is None:
        return None
    if not isinstance(parent, dict) or {type(parent.get("relation_oid")), type(parent.get("name"))} != {int, str}:
        raise malformed_record(change)
    return parent["relation_oid"], parent["name"]


def make_part_id(relation_oid: int | None, name: str | None) -> PartId | None:
    """Return the id of an index or foreign key, None if the table's OID or the name is None."""
    return None if relation_oid is None or name is None else (relation_oid, name)


def _parent_record(parent: PartId | None) -> dict[str, Any]:
    return {"parent": None if parent is None else {"relation_oid": parent[0], "name": parent[1]}}


def compose_forget(change: Change) -> str:
    """Return the command that forgets an index or key, by its parent's name if it was attached to one."""
    parent = parent_id_of(change)
    name = change.name if parent is None else parent[1]
    return f"penstock repair --forget-missing {shlex.quote(quote_name(name))}"


def malformed_record(change: Change) -> TargetError:
    """Return the error for a record that lacks what penstock writes."""
    return TargetError(
        f'the record of {change.kind} "{change.name}" of table "{change.target}" was not written by penstock',
        detail=f"It is number {change.number} of table oid {change.target_oid} in the ledger's table changes.",
        hint="Create the index or constraint by hand, and delete the record.",
    )


def _read_row(change: Change, key: str, row_type: type[_Row]) -> _Row:
    found = change.record.get(key)
    if not isinstance(found, dict) or set(found) != {field.name for field in fields(row_type)}:
        raise malformed_record(change)
    return row_type(**found)
