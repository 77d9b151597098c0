"""The key of an upsert: the unique index that ON CONFLICT infers, and SQL conditions for equal keys.

The index decides which keys are equal: by its operator class and collation, which may differ from the column's, and by
its rule whether two nulls are equal. merge.py merges records by this key.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from psycopg import sql

from penstock.core.catalogue.staging import SEQUENCE_COLUMN
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, list_identifiers, table_identifier
from penstock.core.values.options import quote_name
from penstock.core.values.table import TableFacts
from penstock.loading.plan.modes import check_key_names

_COMMA = sql.SQL(", ")

# The alias of a staging table beside the table itself.
_STAGED = "penstock_staged"


@slotted
class UniqueIndex:
    """The row of merge_keys.sql: a unique index, and what keeps it from being the key of INSERT ... ON CONFLICT."""

    oid: int
    name: str
    is_primary: bool
    is_valid: bool
    is_partial: bool
    is_deferrable: bool
    is_exclusion: bool
    has_equal_nulls: bool
    # The names of the index's columns. An expression is None.
    columns: list[str | None]


@slotted
class PartitionColumn:
    """The row of partition_columns.sql: a column by which a table or one of its partitions is partitioned."""

    # The column's name, None if the table is partitioned by an expression.
    name: str | None


@slotted
class KeyColumn:
    """The row of merge_key_columns.sql: a column, and its collation, operator class, < and = in the index."""

    name: str
    is_not_null: bool
    collation_schema: str | None
    collation: str | None
    class_schema: str
    operator_class: str
    less_schema: str
    less: str
    equal_schema: str
    equal: str


@slotted
class ColumnPrivileges:
    """The row of merge_privileges.sql: what this role may do with one column."""

    name: str
    can_select: bool
    can_update: bool


@slotted
class Key:
    """The unique index by which a merge finds the row of a record."""

    index: str
    columns: tuple[KeyColumn, ...]
    # Whether two nulls in the key are equal.
    has_equal_nulls: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns' names, in the index's order."""
        return tuple(column.name for column in self.columns)


def check_key(
    connection: Connection,
    target: TableFacts,
    key: Sequence[str],
    *,
    columns: Sequence[str],
    updates: bool,
) -> None:
    """Raise TargetError or UsageError if ON CONFLICT cannot merge records with these columns by the columns of `key`.

    `columns` are the columns of the files, and must include those of `key`. A valid unique index must exist on exactly
    the columns of `key`. This index may not be partial or deferrable, or have expressions. The role needs
    SELECT on `key` and, if the merge updates rows, UPDATE on the other columns of the files. Raises ServerError.
    """
    check_key_names(target, key, columns)
    find_key(connection, target, key)
    updated = [name for name in columns if name not in key] if updates else []
    _check_identities(target, updated)
    with translate_errors(f"looking up privileges on {target.name}"):
        privileges = fetch_rows(connection, "loading/merge_privileges", ColumnPrivileges, oid=target.oid)
    _check_privileges(target, privileges, key=key, updated=updated)


def find_key(connection: Connection, target: TableFacts, key: Sequence[str]) -> Key:
    """Return the unique index on exactly the columns of `key`. Raises TargetError if there is none, and ServerError."""
    with translate_errors(f"looking up the unique indexes of {target.name}"):
        indexes = fetch_rows(connection, "loading/merge_keys", UniqueIndex, oid=target.oid)
        _refuse_deferrable(target, key, indexes)
        chosen = next((index for index in indexes if _is_on(index, key) and not _find_faults(index)), None)
        if chosen is None:
            parts = fetch_rows(connection, "loading/partition_columns", PartitionColumn, oid=target.oid)
            raise _no_index(target, key, indexes, parts)
        columns = fetch_rows(connection, "loading/merge_key_columns", KeyColumn, oid=chosen.oid)
    return Key(index=chosen.name, columns=tuple(columns), has_equal_nulls=chosen.has_equal_nulls)


def _refuse_deferrable(target: TableFacts, key: Sequence[str], indexes: Sequence[UniqueIndex]) -> None:
    """Raise TargetError if a deferrable constraint is on the key: ON CONFLICT infers its index beside an equal one."""
    for index in indexes:
        if _is_on(index, key) and index.is_valid and index.is_deferrable and not index.is_partial:
            raise TargetError(
                f'records cannot be merged by ({", ".join(key)}) of "{target.name}": constraint "{index.name}" is '
                "deferrable",
                hint="Drop the constraint, and add it again without DEFERRABLE.",
            )


# ---------------------------------------------------------------- SQL


def key_terms(key: Key) -> list[sql.Composed]:
    """Return an SQL expression for each column of the key: its name, with the index's collation if it has one."""
    return [_collate(column) for column in key.columns]


def key_order(key: Key) -> list[sql.Composed]:
    """Return the terms of an ORDER BY that sorts records by the key as the index does."""
    return [
        sql.SQL("{} USING OPERATOR({}.{})").format(term, sql.Identifier(column.less_schema), sql.SQL(column.less))
        for column, term in zip(key.columns, key_terms(key), strict=True)
    ]


def conflict_target(key: Key) -> sql.Composed:
    """Return what is in the parentheses after ON CONFLICT: it infers this index, not one with another collation."""
    return _COMMA.join(
        sql.SQL("{} {}").format(term, sql.Identifier(column.class_schema, column.operator_class))
        for column, term in zip(key.columns, key_terms(key), strict=True)
    )


def tell_unequal(key: Key, *, with_not_null: bool) -> list[sql.Composed]:
    """Return a list of at most one SQL expression, which has another value for each record with a null in its key.

    With it in DISTINCT ON, no such record is a duplicate. The list is empty if nulls are equal or cannot occur. Unless
    `with_not_null` is true, columns that are NOT NULL are ignored, because the statement fails for the first record
    with a null in one of them.
    """
    names = [
        column.name for column in key.columns if (with_not_null if column.is_not_null else not key.has_equal_nulls)
    ]
    if not names:
        return []
    return [sql.SQL("CASE WHEN {} THEN {} END").format(_lacks_value(names), sql.Identifier(SEQUENCE_COLUMN))]


def equals_previous(key: Key) -> sql.Composed:
    """Return the SQL condition that a record has the same key as the previous record in window w."""
    return sql.SQL(" AND ").join(
        _equals_previous(key, column, term) for column, term in zip(key.columns, key_terms(key), strict=True)
    )


def same_key(key: Key, one: str, other: str) -> sql.Composed:
    """Return the SQL condition that two rows have equal keys without nulls, as the index compares them.

    `one` and `other` are the aliases of the two rows' tables.
    """
    return sql.SQL(" AND ").join(_equals(column, one, other) for column in key.columns)


def same_lack(key: Key, one: str, other: str) -> sql.Composed | None:
    """Return the SQL condition that two rows have equal keys that contain nulls, or None if that is impossible.

    `one` and `other` are the aliases of the two rows' tables. A null in a column that is NOT NULL never counts as
    equal, because no row of the table has one. This condition is separate from `same_key`, because with an OR between
    the two, the server could not use a hash or merge join.
    """
    nullable = [column for column in key.columns if key.has_equal_nulls and not column.is_not_null]
    if not nullable:
        return None
    terms = [
        sql.SQL("({} OR ({} IS NOT DISTINCT FROM NULL AND {} IS NOT DISTINCT FROM NULL))").format(
            _equals(column, one, other), sql.Identifier(one, column.name), sql.Identifier(other, column.name)
        )
        if column in nullable
        else _equals(column, one, other)
        for column in key.columns
    ]
    lacks = _lacks_value([column.name for column in nullable], one)
    return sql.SQL("({}) AND {}").format(lacks, sql.SQL(" AND ").join(terms))


def lacks_record(key: Key, staging: sql.Composable, table: str) -> sql.Composed:
    """Return the SQL condition that no record in table `staging` has the key of the current row of `table`.

    `table` is an alias. With the two tables exchanged, it is the condition that no row has the key of a record.

    Unless nulls are equal in the index, no record can match a row with a null in its key. The condition is false for
    such a row, so that the row is kept.
    """
    ways = [way for way in (same_key(key, _STAGED, table), same_lack(key, _STAGED, table)) if way is not None]
    absent = sql.SQL("NOT EXISTS (SELECT FROM {} AS {} WHERE {})")
    terms = [absent.format(staging, sql.Identifier(_STAGED), way) for way in ways]
    nullable = [column.name for column in key.columns if not (column.is_not_null or key.has_equal_nulls)]
    if nullable:
        terms.append(sql.SQL("NOT ({})").format(_lacks_value(nullable, table)))
    return sql.SQL(" AND ").join(terms)


def _lacks_value(names: Iterable[str], *alias: str) -> sql.Composed:
    """Return the condition that any of the columns is null. As in an index, a composite of nulls is not null."""
    return sql.SQL(" OR ").join(
        sql.SQL("{} IS NOT DISTINCT FROM NULL").format(sql.Identifier(*alias, name)) for name in names
    )


def _equals(column: KeyColumn, one: str, other: str) -> sql.Composed:
    collate: sql.Composable = sql.SQL("")
    if column.collation is not None and column.collation_schema is not None:
        collate = sql.SQL(" COLLATE {}").format(sql.Identifier(column.collation_schema, column.collation))
    return sql.SQL("{}{} OPERATOR({}.{}) {}").format(
        sql.Identifier(one, column.name),
        collate,
        sql.Identifier(column.equal_schema),
        sql.SQL(column.equal),
        sql.Identifier(other, column.name),
    )


def _equals_previous(key: Key, column: KeyColumn, term: sql.Composed) -> sql.Composed:
    name = sql.Identifier(column.name)
    is_equal = sql.SQL("{} OPERATOR({}.{}) pg_catalog.lag({}) OVER w").format(
        term,
        sql.Identifier(column.equal_schema),
        sql.SQL(column.equal),
        name,
    )
    if not key.has_equal_nulls or column.is_not_null:
        return is_equal
    return sql.SQL(
        "({} OR ({} IS NOT DISTINCT FROM NULL AND pg_catalog.lag({}) OVER w IS NOT DISTINCT FROM NULL"
        " AND pg_catalog.row_number() OVER w > 1))"
    ).format(is_equal, name, name)


def _collate(column: KeyColumn) -> sql.Composed:
    name = sql.Identifier(column.name)
    if column.collation is None or column.collation_schema is None:
        return sql.Composed([name])
    return sql.SQL("{} COLLATE {}").format(name, sql.Identifier(column.collation_schema, column.collation))


# ---------------------------------------------------------------- errors about a key


def _check_identities(target: TableFacts, updated: Iterable[str]) -> None:
    for name in updated:
        column = target.column(name)
        if column is not None and column.identity == "a":
            raise TargetError(
                f'column "{name}" is GENERATED ALWAYS AS IDENTITY and cannot be updated',
                detail="INSERT may override such a column's value, UPDATE may not.",
                hint=f"Skip it with --skip {name}, name it in --key, or make it GENERATED BY DEFAULT.",
            )


def _check_privileges(
    target: TableFacts, privileges: Iterable[ColumnPrivileges], *, key: Sequence[str], updated: Sequence[str]
) -> None:
    unreadable = [row.name for row in privileges if row.name in key and not row.can_select]
    unchangeable = [row.name for row in privileges if row.name in updated and not row.can_update]
    for privilege, names in (("SELECT", unreadable), ("UPDATE", unchangeable)):
        if names:
            grant = sql.SQL("GRANT {} ({}) ON {} TO ...;").format(
                sql.SQL(privilege), list_identifiers(names), table_identifier(target.name)
            )
            raise TargetError(
                f'permission denied for table "{target.name}"',
                detail=f"Merging by a key needs {privilege} on {', '.join(names)}.",
                hint=f"Have the owner run {grant.as_string(None)}",
            )


def _no_index(
    target: TableFacts, key: Sequence[str], indexes: Sequence[UniqueIndex], parts: Sequence[PartitionColumn]
) -> TargetError:
    """Return the error for a key without an index.

    `parts` are the columns that partition the table and its partitions.
    """
    listed = ", ".join(key)
    near = [index for index in indexes if set(index.columns) & set(key)] or list(indexes)
    is_table = target.kind in {"r", "p"}
    return TargetError(
        f'no unique index on ({listed}) of "{target.name}" can be used by ON CONFLICT',
        detail=" ".join(map(_describe, near)) or ("It has no unique index." if is_table else "It is not a table."),
        hint=_hint_index(target, key, indexes, parts) if is_table else "Load into the table itself.",
    )


def _hint_index(
    target: TableFacts, key: Sequence[str], indexes: Sequence[UniqueIndex], parts: Sequence[PartitionColumn]
) -> str:
    """Return how to create a unique index that PostgreSQL accepts.

    The index needs the columns that partition the table.
    """
    if any(part.name is None for part in parts):
        return "Load into a partition: the table is divided by an expression, so it can have no unique index."
    whole = list(dict.fromkeys([*key, *(part.name for part in parts if part.name is not None)]))
    # CONCURRENTLY does not work for partitioned tables.
    build = sql.SQL("CREATE UNIQUE INDEX{} ON {} ({});").format(
        sql.SQL("" if target.kind == "p" else " CONCURRENTLY"), table_identifier(target.name), list_identifiers(whole)
    )
    if len(whole) == len(key):
        return f"Create one: {build.as_string(None)} A table that --create makes gets one by --key."
    option = f"--key {shlex.quote(','.join(map(quote_name, whole)))}"
    reason = "a unique index of a partitioned table has the columns that it is divided by"
    if any(_is_on(index, whole) and not _find_faults(index) for index in indexes):
        return f"Use {option}: {reason}."
    return f"Use {option}, and create the index: {build.as_string(None)} For {reason}."


def _describe(index: UniqueIndex) -> str:
    columns = ", ".join("an expression" if name is None else name for name in index.columns)
    faults = _find_faults(index)
    return f'Unique index "{index.name}" is on ({columns}){" and is " + " and ".join(faults) if faults else ""}.'


def _find_faults(index: UniqueIndex) -> list[str]:
    """Return what prevents ON CONFLICT from inferring an index (infer_arbiter_indexes in plancat.c)."""
    faults = {
        "not valid": not index.is_valid,
        "partial": index.is_partial,
        "deferrable": index.is_deferrable,
        "not a btree": index.is_exclusion,
    }
    return [fault for fault, has_fault in faults.items() if has_fault]


def _is_on(index: UniqueIndex, key: Sequence[str]) -> bool:
    return len(index.columns) == len(key) and set(index.columns) == set(key)
