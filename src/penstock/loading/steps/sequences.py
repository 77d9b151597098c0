"""The step that advances the sequences of loaded columns beyond the largest loaded value."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

import psycopg
from psycopg import sql

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows, table_identifier
from penstock.core.values.table import Column, TableFacts
from penstock.loading.claim.decide import NothingToDo
from penstock.loading.context import LoadTools
from penstock.loading.steps.step import RunningLoad, Step
from penstock.loading.values.plan import LoadPlan, TargetPlan

_log = logging.getLogger(__name__)

# The types of columns whose greatest value can be a sequence's value. Keys from other databases are often numeric.
_KEY_TYPES = ("smallint", "integer", "bigint", "numeric")


@slotted
class SequenceRow:
    """The row of sequence.sql: the definition and the last value of a sequence, as far as this role may see them."""

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
    """Advance the sequences of loaded columns past the columns' values. Return a warning for each that is not advanced.

    `columns` are the names of the loaded columns. The last value of a column is read from an index, or otherwise from
    the whole table. A sequence is only moved forwards. But if another session calls nextval between the query and
    setval, that call can be undone. Needs SELECT on the column, and USAGE, SELECT and UPDATE on the sequence. Without
    these, a warning says what to grant. Raises ServerError.
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
    """Return the value to which setval must set a sequence, or None if it need not be set.

    `end` is the greatest value of the column, or the least if the sequence descends, None if the column has no value.
    The next value of an unused sequence is its start value. So if the column already has this value, the sequence must
    be set too.
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
    if not column.base.name.startswith(_KEY_TYPES):
        return f'sequence {name} was not advanced: column "{column.name}" is of type {column.type_name}'
    try:
        (sequence,) = fetch_rows(connection, "loading/sequence", SequenceRow, sequence=name)
        if not (sequence.can_set and sequence.can_read):
            return _grant_warning(connection, facts, column, name)
        end = _find_end(connection, facts, column, is_ascending=sequence.increment > 0)
        (sequence,) = fetch_rows(connection, "loading/sequence", SequenceRow, sequence=name)
        if sequence.last_value is None:
            # RESTART WITH, and setval(..., false), leave a sequence unused, with another next value than its start.
            (start,) = fetch_one(connection, sql.SQL("SELECT last_value FROM {}").format(sql.SQL(name)))
            sequence = replace(sequence, start=int(start))
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
    # Numeric columns may contain NaN and infinities, which a sequence cannot take.
    is_finite = sql.SQL(" WHERE {} NOT IN ('NaN', 'Infinity', '-Infinity')").format(name)
    query = sql.SQL("SELECT pg_catalog.{}({}) FROM {}{}").format(
        sql.Identifier("max" if is_ascending else "min"),
        name,
        table_identifier(facts.name),
        is_finite if column.base.name.startswith("numeric") else sql.SQL(""),
    )
    row = connection.execute(query).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _grant_warning(connection: Connection, facts: TableFacts, column: Column, name: str) -> str:
    user = connection.execute("SELECT CURRENT_USER::text").fetchone()
    assert user is not None
    grants = sql.SQL("GRANT SELECT ({}) ON {} TO {}; GRANT USAGE, SELECT, UPDATE ON SEQUENCE {} TO {};").format(
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


class Sequences(Step):
    """Advances the sequences of the loaded columns past their values, when the rows are in the tables.

    That is before the load's end if COPY fills the tables, and after it if the load's end stores the rows. If the load
    is killed before its end, the next run advances the sequences.
    """

    def __init__(self, plan: LoadPlan, tools: LoadTools) -> None:
        self._tools = tools
        # A partition that the load has attached exists in the next run, which plans to copy into it.
        self._is_merged = plan.needs_more_than_copy or any(each.job.partition_of for each in plan.targets)
        self._fed = [
            (target.facts, _fed_columns(target))
            for target in plan.targets
            if target.facts is not None and any(column.sequence for column in target.facts.columns)
        ]

    def after(self, load: RunningLoad, connection: Connection) -> None:
        """Advance the sequences if the load has not ended yet.

        An error becomes a warning. But if the connection is lost, the error is raised.
        """
        if not load.is_ended:
            self._advance_or_warn(connection)

    def before_confirming(self, load: RunningLoad, connection: Connection) -> None:
        """Advance the sequences after the load's end, if some table got its rows only by the load's end."""
        if load.is_staged and self._fed:
            self._advance_or_warn(connection)

    def nothing_to_do(self, nothing: NothingToDo, connection: Connection) -> None:  # noqa: ARG002 (a step's)
        """Advance the sequences if an earlier run may have been killed after its end, before it advanced them.

        That is so if more than COPY is needed to fill a table.
        """
        if self._is_merged:
            self._advance_or_warn(connection)

    def _advance_or_warn(self, connection: Connection) -> None:
        try:
            messages = self._advance(connection)
        except (PenstockError, KeyboardInterrupt) as error:
            if connection.closed:
                # If the connection is lost, the next attempt advances the sequences.
                raise
            # Warn instead of raising any other error, because the rows are stored.
            messages = [_describe(error)]
        self._warn(messages)

    def _advance(self, connection: Connection) -> list[str]:
        return [message for facts, columns in self._fed for message in advance_sequences(connection, facts, columns)]

    def _warn(self, messages: list[str]) -> None:
        for message in messages:
            self._tools.warnings.warn("sequences", message)


def _describe(error: BaseException) -> str:
    return f"sequences were not advanced: {error or 'interrupted'}"


def _fed_columns(target: TargetPlan) -> tuple[str, ...]:
    """Return the columns that may have got values from the load. With a transform, these are all columns."""
    if target.job.transform is not None and target.facts is not None:
        return tuple(column.name for column in target.facts.columns)
    return target.column_map.columns
