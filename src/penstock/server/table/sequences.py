"""Advances sequences past the values that a load has stored.

COPY writes the given values to identity and serial columns and does not advance their sequences. Without the advance,
the next INSERT would get a key that exists.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import psycopg
from psycopg import sql

from penstock.frozen import frozen
from penstock.model.server.table import Column, TableFacts
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows, table_identifier

_log = logging.getLogger(__name__)

# The column types with a greatest value that fits a sequence. Keys from other databases are often numeric.
_KEY_TYPES = ("smallint", "integer", "bigint", "numeric")


@frozen
class SequenceRow:
    """The row of sequence.sql."""

    oid: int
    increment: int
    minimum: int
    maximum: int
    start: int
    can_set: bool
    can_read: bool
    # None if the sequence has never been used or may not be read.
    last_value: int | None


def advance_sequences(connection: Connection, facts: TableFacts, columns: Collection[str]) -> list[str]:
    """Advance the sequences that the loaded columns own past the columns' values. Return warnings.

    The last value of a column is read from an index, or otherwise from the whole table. A sequence never moves
    backwards (but a nextval by hand between the query and setval can be undone). Needs SELECT on the column and USAGE
    and UPDATE on the sequence; without them a warning says what to grant. Raises ServerError.
    """
    warnings = []
    for column in facts.columns:
        if column.sequence is None or column.name not in columns:
            continue
        with translate_errors(f"advancing sequence {column.sequence}"):
            warning = _advance(connection, facts, column, column.sequence)
        if warning:
            warnings.append(warning)
    return warnings


def choose_position(sequence: SequenceRow, end: int | None) -> int | None:
    """Return the value to which a sequence must be set, or None if it need not be set.

    `end` is the greatest value of the column, or the least if the sequence descends. The next value of an unused
    sequence is its start value, so a column that ends at the start value collides too.
    """
    if end is None:
        return None
    direction = 1 if sequence.increment > 0 else -1
    is_beyond = (
        (end - sequence.start) * direction >= 0
        if sequence.last_value is None
        else (end - sequence.last_value) * direction > 0
    )
    return end if is_beyond else None


def _advance(connection: Connection, facts: TableFacts, column: Column, name: str) -> str | None:
    """Advance one sequence. Return a warning if that is not possible."""
    if not column.type_name.startswith(_KEY_TYPES):
        return f'sequence {name} was not advanced: column "{column.name}" is of type {column.type_name}'
    try:
        (sequence,) = fetch_rows(connection, "sequence", SequenceRow, sequence=name)
        if not (sequence.can_set and sequence.can_read):
            return _grant_warning(connection, facts, column, name)
        end = _find_end(connection, facts, column, is_ascending=sequence.increment > 0)
        (sequence,) = fetch_rows(connection, "sequence", SequenceRow, sequence=name)
        position = choose_position(sequence, end)
        if position is None:
            return None
        if not sequence.minimum <= position <= sequence.maximum:
            return (
                f'sequence {name} was not advanced: column "{column.name}" reached {position},'
                f" beyond its bounds {sequence.minimum} to {sequence.maximum}"
            )
        _log.info("advancing sequence %s from %s to %s", name, sequence.last_value, position)
        connection.execute("SELECT pg_catalog.setval(%s::oid::regclass, %s)", [sequence.oid, position])
    except psycopg.errors.InsufficientPrivilege:
        return _grant_warning(connection, facts, column, name)
    return None


def _find_end(connection: Connection, facts: TableFacts, column: Column, *, is_ascending: bool) -> int | None:
    """Return the greatest (or least) value of a column, or None if it has none."""
    name = sql.Identifier(column.name)
    # Only numeric has NaN and infinities.
    is_finite = sql.SQL(" WHERE {} NOT IN ('NaN', 'Infinity', '-Infinity')").format(name)
    query = sql.SQL("SELECT pg_catalog.{}({}) FROM {}{}").format(
        sql.Identifier("max" if is_ascending else "min"),
        name,
        table_identifier(facts.name),
        is_finite if column.type_name.startswith("numeric") else sql.SQL(""),
    )
    row = connection.execute(query).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _grant_warning(connection: Connection, facts: TableFacts, column: Column, name: str) -> str:
    user = connection.execute("SELECT CURRENT_USER::text").fetchone()
    assert user is not None
    grants = sql.SQL("GRANT SELECT ({}) ON {} TO {}; GRANT USAGE, UPDATE ON SEQUENCE {} TO {};").format(
        sql.Identifier(column.name),
        table_identifier(facts.name),
        sql.Identifier(user[0]),
        sql.SQL(name),  # quoted by the server's format('%I.%I')
        sql.Identifier(user[0]),
    )
    return (
        f'sequence {name} was not advanced past the values of column "{column.name}": permission denied;'
        f" have the owner run {grants.as_string(connection)} and set the sequence, or new rows may get"
        " used keys"
    )
