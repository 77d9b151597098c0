"""Finds records of a staging table by their position in the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from penstock.frozen import frozen
from penstock.model.load.landing import BLOCK_COLUMN, OBJECT_COLUMN, SEQUENCE_COLUMN
from penstock.server.connect.connection import Connection
from penstock.server.sql.queries import fetch_one, table_identifier

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from penstock.model.server.table import TableName

# The SQLSTATE of a missing privilege, and of a row that a row-level security policy refuses.
_INSUFFICIENT_PRIVILEGE = "42501"
# The function of the server that raises 42501 if a policy refused the row.
_POLICY_FUNCTION = "ExecWithCheckOptions"


@frozen
class RecordPosition:
    """A record's position in the files."""

    # The number of its object in the load.
    object_number: int
    # The offset of its block, in bytes.
    block_start: int
    # Its number in the block.
    record: int


def is_policy_violation(diagnostic: Diagnostic) -> bool:
    """Return whether a policy refused a row. A missing privilege raises the same SQLSTATE."""
    return diagnostic.sqlstate == _INSUFFICIENT_PRIVILEGE and diagnostic.source_function == _POLICY_FUNCTION


def find_position(
    connection: Connection, staging: TableName, object_number: int, block_start: int, sequence: int
) -> RecordPosition:
    """Return the position of a record.

    The record's number is how many records of its block are staged up to and including it.
    """
    query = sql.SQL("SELECT pg_catalog.count(*) FROM {} WHERE {} = %s AND {} = %s AND {} <= %s").format(
        table_identifier(staging), *map(sql.Identifier, (OBJECT_COLUMN, BLOCK_COLUMN, SEQUENCE_COLUMN))
    )
    (record,) = fetch_one(connection, query, [object_number, block_start, sequence])
    return RecordPosition(object_number=object_number, block_start=block_start, record=record)
