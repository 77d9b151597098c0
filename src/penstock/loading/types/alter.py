"""Adds columns to tables, and changes them to wider types, in the transaction that records the load."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import in_transaction, translate_errors
from penstock.core.errors import OtherTableError
from penstock.core.sql import fetch_names, run_query, table_identifier
from penstock.core.values.table import TableName
from penstock.loading.values.types import ColumnChange

_log = logging.getLogger(__name__)


def find_dependents(connection: Connection, oid: int, column: str) -> list[str]:
    """Return descriptions of the objects that depend on a column, such as indexes and views, in the server's words.

    `oid` is the OID of the column's table. Raises ServerError.
    """
    with translate_errors(f'looking up what uses column "{column}"'):
        return fetch_names(connection, "loading/dependents", oid=oid, name=column)


def alter_table(
    connection: Connection,
    name: TableName,
    oid: int,
    changes: Sequence[ColumnChange],
    check: Callable[[Sequence[ColumnChange]], None] = lambda _: None,
) -> None:
    """Add columns to a table and change types of columns, by one ALTER TABLE. Skip changes that are made already.

    `oid` is the OID that the table had when the changes were planned. `check` is called with the changes that are not
    made yet, and may raise TargetError. Takes an ACCESS EXCLUSIVE lock, also on
    partitions, until the caller's transaction ends. If a type is changed, PostgreSQL may rewrite the table. The role
    must own the table. Raises OtherTableError if the name belongs to another table, or if a column has another number
    than planned, TargetError, ServerError.
    """
    table = table_identifier(name)
    with in_transaction(connection, f"altering table {name}"):
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
        found = connection.execute("SELECT %s::regclass::oid", [table.as_string(connection)]).fetchone()
        oids = _read_types(connection, changes)
        missing = [change for change in changes if not _is_made(change, _read_columns(connection, oid), oids, name)]
        if found != (oid,):
            raise _changed(name)
        if not missing:
            return
        check(missing)
        connection.execute(sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(", ").join(map(_compose, missing))))
        columns = _read_columns(connection, oid)
        if not all(_is_made(change, columns, oids, name) for change in missing):
            # Another session has added or dropped a column, so this column has another number than planned.
            raise _changed(name)
    for change in missing:
        _log.info("table %s: %s", name, change.action)


def _compose(change: ColumnChange) -> sql.Composed:
    words = "ADD COLUMN {} {}" if change.was is None else "ALTER COLUMN {} TYPE {}"
    return sql.SQL(words).format(sql.Identifier(change.column), sql.SQL(change.type_name))


def _read_columns(connection: Connection, oid: int) -> dict[str, tuple[int, int]]:
    return {
        name: (number, type_oid) for name, number, type_oid in run_query(connection, "loading/column_types", oid=oid)
    }


def _read_types(connection: Connection, changes: Sequence[ColumnChange]) -> dict[str | None, int]:
    """Return the OIDs of the types that columns have before the changes and after them."""
    names = [name for change in changes for name in (change.was, change.type_name) if name is not None]
    return dict(connection.execute("SELECT name, name::regtype::oid FROM unnest(%s::text[]) AS name", [names]))


def _is_made(
    change: ColumnChange, columns: dict[str, tuple[int, int]], oids: Mapping[str | None, int], table: TableName
) -> bool:
    """Return whether a change has been made already.

    Raise OtherTableError if the column has neither its type before the change nor its type after it.
    """
    found = columns.get(change.column)
    if found == (change.number, oids[change.type_name]):
        return True
    before = None if change.was is None else (change.number, oids[change.was])
    if found != before:
        raise _changed(table)
    return False


def _changed(name: TableName) -> OtherTableError:
    return OtherTableError(
        f'the columns of table "{name}" have changed since the load was planned',
        detail="Another session has altered or exchanged the table.",
        hint="Run the load again.",
    )
