"""Records of a staging table by where they stood in the files, and those that break a constraint of their table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.model.load.landing import BLOCK_COLUMN, OBJECT_COLUMN, POSITION_COLUMNS, SEQUENCE_COLUMN
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.errors import Diagnostic

    from penstock.model.server.table import TableName
    from penstock.server.connect.connection import Connection

# SQLSTATEs of what one record can break by itself.
NOT_NULL_VIOLATION = "23502"
FOREIGN_KEY_VIOLATION = "23503"
CHECK_VIOLATION = "23514"
# A policy's refusal of a row where this function of the server's raised it, otherwise a missing privilege.
_INSUFFICIENT_PRIVILEGE = "42501"
_POLICY_FUNCTION = "ExecWithCheckOptions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlace:
    """Where a record stood: its object's number, its block's offset in bytes, and its number in the block, from 1."""

    object_number: int
    block_start: int
    record: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintRow:
    """The row of merge_constraint.sql; `kind` is pg_constraint.contype."""

    kind: str
    expression: str | None
    columns: list[str]
    referenced_schema: str | None
    referenced_table: str | None
    referenced_columns: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The row of merge_policies.sql."""

    is_permissive: bool
    expression: str | None


def is_policy_violation(diagnostic: Diagnostic) -> bool:
    """Whether a policy refused a row; the same SQLSTATE may speak of the role's privileges."""
    return diagnostic.sqlstate == _INSUFFICIENT_PRIVILEGE and diagnostic.source_function == _POLICY_FUNCTION


def find_offender(
    connection: Connection, diagnostic: Diagnostic, *, staging: TableName, target_oid: int, columns: Sequence[str]
) -> RecordPlace | None:
    """Return the first record, in file order, that breaks the constraint of which an error speaks.

    None where that cannot be told from the file's columns alone. Raises psycopg.Error: a foreign key's table may be
    closed to the role.
    """
    if is_policy_violation(diagnostic):
        condition = _breaks_policies(fetch_rows(connection, "merge_policies", PolicyRow, oid=target_oid))
    else:
        condition = _find_condition(connection, diagnostic, columns)
    if condition is None:
        return None
    query = sql.SQL("SELECT {} FROM {} AS s WHERE {} ORDER BY {} LIMIT 1").format(
        position_list(), staging_identifier(staging), condition, position_list()
    )
    row = connection.execute(query).fetchone()
    return None if row is None else find_place(connection, staging, *row)


def find_place(
    connection: Connection, staging: TableName, object_number: int, block_start: int, sequence: int
) -> RecordPlace:
    """Return where the record of these positions stood: its number is how many of its block came up to it."""
    query = sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {} = %s AND {} = %s AND {} <= %s").format(
        staging_identifier(staging), *map(sql.Identifier, (OBJECT_COLUMN, BLOCK_COLUMN, SEQUENCE_COLUMN))
    )
    row = connection.execute(query, [object_number, block_start, sequence]).fetchone()
    assert row is not None
    return RecordPlace(object_number=object_number, block_start=block_start, record=int(row[0]))


def position_list() -> sql.Composed:
    """Return the position columns, comma-separated."""
    return sql.SQL(", ").join(map(sql.Identifier, POSITION_COLUMNS))


def staging_identifier(staging: TableName) -> sql.Identifier:
    """Return a staging table's qualified name as SQL writes it."""
    assert staging.schema is not None
    return sql.Identifier(staging.schema, staging.name)


def _find_condition(connection: Connection, diagnostic: Diagnostic, columns: Sequence[str]) -> sql.Composed | None:
    """Return what is true of a record s that breaks the constraint, or None."""
    if diagnostic.sqlstate == NOT_NULL_VIOLATION:
        name = diagnostic.column_name
        if name is None or name not in columns:
            return None
        return sql.SQL("s.{} IS NULL").format(sql.Identifier(name))
    if diagnostic.sqlstate not in {CHECK_VIOLATION, FOREIGN_KEY_VIOLATION} or diagnostic.constraint_name is None:
        return None
    rows = fetch_rows(
        connection,
        "merge_constraint",
        ConstraintRow,
        schema=diagnostic.schema_name,
        table=diagnostic.table_name,
        constraint=diagnostic.constraint_name,
    )
    if not rows or not set(rows[0].columns) <= set(columns):
        return None
    (constraint,) = rows
    return _breaks_reference(constraint) if constraint.kind == "f" else _breaks_check(constraint)


def _breaks_check(constraint: ConstraintRow) -> sql.Composed | None:
    if constraint.expression is None:
        return None
    # The server's own text; a CHECK is broken by false, not by null.
    return sql.SQL("NOT ({})").format(sql.SQL(constraint.expression))


def _breaks_policies(policies: Sequence[PolicyRow]) -> sql.Composed | None:
    """Return what is true of a record that no permissive policy admits, or that some restrictive one does not."""
    admits = [sql.SQL("({})").format(sql.SQL(each.expression or "true")) for each in policies if each.is_permissive]
    asks = [sql.SQL("({})").format(sql.SQL(each.expression or "true")) for each in policies if not each.is_permissive]
    if not admits:
        return None
    every = [sql.SQL("({})").format(sql.SQL(" OR ").join(admits)), *asks]
    return sql.SQL("({}) IS NOT TRUE").format(sql.SQL(" AND ").join(every))


def _breaks_reference(constraint: ConstraintRow) -> sql.Composed:
    pairs = list(zip(constraint.columns, constraint.referenced_columns, strict=True))
    is_given = [sql.SQL("s.{} IS NOT NULL").format(sql.Identifier(name)) for name, _ in pairs]
    is_equal = [sql.SQL("r.{} = s.{}").format(sql.Identifier(other), sql.Identifier(name)) for name, other in pairs]
    conjunction = sql.SQL(" AND ")
    return sql.SQL("{} AND NOT EXISTS (SELECT FROM {} AS r WHERE {})").format(
        conjunction.join(is_given),
        sql.Identifier(constraint.referenced_schema or "", constraint.referenced_table or ""),
        conjunction.join(is_equal),
    )
