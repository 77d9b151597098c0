"""Staging tables: they receive records before one statement stores them in the target table.

A staging table is an ordinary logged table, so what a session commits to it is as safe as in any table. It has the
file's columns, without constraints or defaults, followed by the position of each record. Only its owner may
read it. loading/land/merge.py merges its rows. The caller chooses schema and name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import TargetError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows, table_identifier
from penstock.core.values.names import MOST_COLUMNS
from penstock.core.values.table import TableFacts, TableName

# The column with the object's number in the load. Type int.
OBJECT_COLUMN = "penstock_object"
# The column with the offset of the record's block in the decompressed object, in bytes. Type bigint.
BLOCK_COLUMN = "penstock_block"
# The column with a number that rises from record to record of a block. The server assigns it, so COPY does not send it.
# Type bigint.
SEQUENCE_COLUMN = "penstock_seq"

# The columns that COPY sends after the file's columns.
SENT_COLUMNS = (OBJECT_COLUMN, BLOCK_COLUMN)
POSITION_COLUMNS = (*SENT_COLUMNS, SEQUENCE_COLUMN)


_log = logging.getLogger(__name__)

# How many numbers of SEQUENCE_COLUMN a session takes from the sequence at a time. All sessions use one sequence. A
# session locks it and writes WAL only once in this many rows, which saves a quarter of the time (docs/decisions/0009).
# The numbers still ascend within a block, because one session sends a whole block.
_SEQUENCE_CACHE = 1000


@slotted
class ColumnType:
    """The row of landing_columns.sql: a column, with what decides its values: type, modifier and collation."""

    name: str
    type_name: str
    # This and the next field are None if the collation is the type's default.
    collation_schema: str | None
    collation: str | None


@slotted
class GrantRow:
    """The row of landing_grants.sql: a role that has privileges on a table, or on a sequence of its columns."""

    # pg_class.relkind.
    kind: str
    schema: str
    name: str
    # The role that has the privileges, None for PUBLIC.
    grantee: str | None


@slotted
class LandingTable:
    """The row of landing_table.sql: the relation that has the name of a staging table."""

    oid: int
    schema: str
    name: str
    owner: str
    # Whether the current role owns the table.
    is_own: bool
    is_logged_table: bool
    # Whether the table has triggers, rules or row-level security. penstock's staging tables have none.
    has_code: bool
    columns: list[str]

    @property
    def is_ours(self) -> bool:
        """Return whether this is a staging table of this role that nobody has altered, as far as the catalog shows."""
        has_positions = tuple(self.columns[-len(POSITION_COLUMNS) :]) == POSITION_COLUMNS
        return self.is_own and self.is_logged_table and not self.has_code and has_positions


def make_landing_table(
    connection: Connection, *, schema: str, name: str, target: TableFacts, columns: Sequence[str], as_text: bool
) -> int:
    """Create an empty staging table for records of `columns` and return its OID.

    The columns have the types and collations of the target's columns; if `as_text` is true, all have type text. Columns
    for the position of each record follow. Needs CREATE on the schema and USAGE on the target's types. Raises
    TargetError, ServerError.
    """
    check_landing_columns(columns, target.name)
    with in_transaction(connection, f"creating staging table {schema}.{name}"):
        table = sql.Identifier(schema, name)
        connection.execute(_compose_create(connection, table, target, columns, as_text=as_text))
        oid = _find_oid(connection, table)
        _revoke_grants(connection, oid)
    _log.info("created staging table %s.%s for %s", schema, name, target.name)
    return oid


def describe_landing_table(
    connection: Connection, *, table: TableName, target: TableFacts, columns: Sequence[str], as_text: bool
) -> str:
    """Return the CREATE TABLE statement of `make_landing_table`, to be run by psql on a subscriber.

    Raises TargetError, ServerError.
    """
    with translate_errors(f"describing staging table {table}"):
        create = _compose_create(connection, table_identifier(table), target, columns, as_text=as_text)
        return create.as_string(connection) + ";"


def lock_landing_table(connection: Connection, table: TableName) -> None:
    """Take an ACCESS EXCLUSIVE lock on a staging table until the transaction ends. Raises TargetError, ServerError."""
    with translate_errors(f"locking staging table {table}"):
        connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(table_identifier(table)))


def delete_landed(connection: Connection, table: TableName, object_number: int) -> None:
    """Delete the records of one object, given by its number in the load, from a staging table. Raises ServerError."""
    with translate_errors(f"removing records from staging table {table}"):
        connection.execute(
            sql.SQL("DELETE FROM {} WHERE {} = %s").format(table_identifier(table), sql.Identifier(OBJECT_COLUMN)),
            [object_number],
        )


def truncate_landing_table(connection: Connection, table: TableName) -> None:
    """Remove all records of a staging table that this transaction has created. Raises ServerError."""
    with translate_errors(f"emptying staging table {table}"):
        connection.execute(sql.SQL("TRUNCATE {}").format(table_identifier(table)))


def find_landing_table(connection: Connection, *, schema: str, name: str) -> LandingTable | None:
    """Return the relation that has a staging table's name, or None. Check `is_ours` before use. Raises ServerError."""
    with translate_errors(f"looking up staging table {schema}.{name}"):
        rows = fetch_rows(connection, "core/landing_table", LandingTable, schema=schema, name=name)
    return rows[0] if rows else None


def drop_landing_table(connection: Connection, *, schema: str, name: str, oid: int) -> bool:
    """Drop the table with this OID, which was created for a load, and return whether it was dropped.

    It is not dropped if no table has this name, or if the table with this name has another OID. Waits for locks for at
    most lock_timeout. Raises ServerError, and TargetError if another object depends on the table.
    """
    table = sql.Identifier(schema, name)
    with translate_errors(f"dropping table {schema}.{name}"):
        try:
            with in_transaction(connection):
                connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(table))
                if _find_oid(connection, table) != oid:
                    return False
                connection.execute(sql.SQL("DROP TABLE {}").format(table))
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return False
    return True


def check_landing_columns(columns: Sequence[str], target: TableName) -> None:
    """Raise TargetError if a staging table cannot have these columns of the file.

    One of them may have the name of a column that every staging table has for the positions of records, or there may be
    too many of them.
    """
    taken = [name for name in POSITION_COLUMNS if name in columns]
    if taken:
        raise TargetError(
            f'column "{taken[0]}" of the file is also one of every staging table',
            detail=f"Staging tables record positions in {', '.join(POSITION_COLUMNS)}.",
            hint=f"Skip it with --skip {taken[0]}, or name the file's fields with --columns.",
        )
    if len(columns) + len(POSITION_COLUMNS) > MOST_COLUMNS:
        raise TargetError(
            f'cannot create a staging table for "{target}": {len(columns)} columns are too many',
            detail=f"A table has {MOST_COLUMNS} columns at most, and staging needs {len(POSITION_COLUMNS)} of them.",
        )


def _compose_create(
    connection: Connection, table: sql.Identifier, target: TableFacts, columns: Sequence[str], *, as_text: bool
) -> sql.Composed:
    if as_text:
        definitions = [sql.SQL("{} pg_catalog.text").format(sql.Identifier(column)) for column in columns]
    else:
        definitions = typed_columns(connection, target, columns)
    body = sql.SQL(", ").join([*definitions, *_position_columns()])
    return sql.SQL("CREATE TABLE {} ({})").format(table, body)


def typed_columns(connection: Connection, target: TableFacts, columns: Sequence[str]) -> list[sql.Composed]:
    """Return the definitions, for CREATE TABLE, of columns with the types and collations of the target's columns.

    Raises TargetError if the target lacks one of `columns`, and psycopg.Error.
    """
    types = {row.name: row for row in fetch_rows(connection, "core/landing_columns", ColumnType, oid=target.oid)}
    if missing := [name for name in columns if name not in types]:
        raise TargetError(f'column "{missing[0]}" does not exist in table "{target.name}"')
    return [_typed_column(types[name]) for name in columns]


def _typed_column(column: ColumnType) -> sql.Composed:
    # column.type_name is spelled by format_type(), which pg_dump uses too.
    definition = sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type_name))
    if column.collation is None or column.collation_schema is None:
        return definition
    return definition + sql.SQL(" COLLATE {}").format(sql.Identifier(column.collation_schema, column.collation))


def _position_columns() -> list[sql.Composed]:
    return [
        sql.SQL("{} pg_catalog.int4 NOT NULL").format(sql.Identifier(OBJECT_COLUMN)),
        sql.SQL("{} pg_catalog.int8 NOT NULL").format(sql.Identifier(BLOCK_COLUMN)),
        sql.SQL("{} pg_catalog.int8 GENERATED ALWAYS AS IDENTITY (CACHE {})").format(
            sql.Identifier(SEQUENCE_COLUMN), sql.Literal(_SEQUENCE_CACHE)
        ),
    ]


def _find_oid(connection: Connection, table: sql.Identifier) -> int:
    return int(fetch_one(connection, "SELECT %s::regclass::oid", [table.as_string(connection)])[0])


def _revoke_grants(connection: Connection, oid: int) -> None:
    """Revoke what default privileges have granted on a new table and its sequence."""
    for grant in fetch_rows(connection, "core/landing_grants", GrantRow, oid=oid):
        kind = sql.SQL("SEQUENCE" if grant.kind == "S" else "TABLE")
        grantee = sql.SQL("PUBLIC") if grant.grantee is None else sql.Identifier(grant.grantee)
        connection.execute(
            sql.SQL("REVOKE ALL ON {} {} FROM {} CASCADE").format(
                kind, sql.Identifier(grant.schema, grant.name), grantee
            )
        )
