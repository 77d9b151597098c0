"""Reads a table's full definition from the catalogue, in one look and with every name qualified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import OtherTableError, TargetError
from penstock.server.ddl.definition import (
    ColumnRow,
    ConstraintRow,
    Grant,
    IndexRow,
    LabelRow,
    PolicyRow,
    PublicationRow,
    RuleRow,
    SequenceRow,
    SequenceState,
    StatisticsRow,
    TableDefinition,
    TableRow,
    TriggerRow,
)
from penstock.server.ddl.session import Unread, look_again
from penstock.server.errors import translate_errors
from penstock.server.queries import fetch_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.table import TableName
    from penstock.server.connection import Connection

# The parts of a definition that one query each describes.
_PARTS: dict[str, type] = {
    "table": TableRow,
    "columns": ColumnRow,
    "sequences": SequenceRow,
    "indexes": IndexRow,
    "constraints": ConstraintRow,
    "grants": Grant,
    "policies": PolicyRow,
    "triggers": TriggerRow,
    "rules": RuleRow,
    "statistics": StatisticsRow,
    "publications": PublicationRow,
    "labels": LabelRow,
}


def capture_table(connection: Connection, oid: int, *, name: TableName | None = None) -> TableDefinition:
    """Return the definition of a table.

    Any kind of relation is captured; whether it can be replaced is for find_obstacles to say. The statements see
    one state of the catalogue only where the caller holds a lock on the table. Needs SELECT on the sequences that
    the table's columns own, which their owner has. `name` is what the table was called when its oid was read, for the
    error. Raises TargetError where there is no such table, ServerError.
    """
    return look_again(lambda: _capture(connection, oid, name))


def _capture(connection: Connection, oid: int, name: TableName | None) -> TableDefinition:
    with translate_errors("reading a table's definition"):
        queries = [(f"ddl_{part}", row_type) for part, row_type in _PARTS.items()]
        parts = dict(zip(_PARTS, map(tuple, fetch_many(connection, queries, oid=oid)), strict=True))
        if not parts["table"]:
            raise _gone(connection, oid, name)
        (table,) = parts.pop("table")
        states = read_states(connection, parts["sequences"])
    definition = TableDefinition(table=table, sequence_states=states, **parts)
    _check_read(definition)
    return definition


def _gone(connection: Connection, oid: int, name: TableName | None) -> TargetError:
    """Return the error for a table whose oid is no relation's any more: its name may be another's."""
    if name is None:
        return TargetError("the table is gone", detail=f"There is no relation with oid {oid}.")
    quoted = sql.Identifier(name.schema or "public", name.name).as_string(connection)
    row = connection.execute("SELECT pg_catalog.to_regclass(%s) IS NULL", [quoted]).fetchone()
    is_dropped = row == (True,)
    return OtherTableError(
        f'table "{name}" was {"dropped" if is_dropped else "replaced"} after the load was planned',
        detail=None if is_dropped else "Another load with --mode replace did so, or somebody who created it anew.",
        hint="Create it again, then run the load again."
        if is_dropped
        else "Run the load again, if it is still wanted.",
    )


def read_states(connection: Connection, sequences: Sequence[SequenceRow]) -> tuple[SequenceState, ...]:
    """Return where sequences stand at this moment. Needs SELECT on them."""
    states = []
    for sequence in sequences:
        query = sql.SQL("SELECT last_value, is_called FROM {}").format(sql.SQL(sequence.quoted_name))
        row = connection.execute(query).fetchone()
        assert row is not None
        states.append(SequenceState(name=sequence.name, last_value=row[0], is_called=row[1]))
    return tuple(states)


def _check_read(definition: TableDefinition) -> None:
    """Raise Unread for what the server describes otherwise than the .sql files take apart."""
    parts: list[IndexRow | TriggerRow | StatisticsRow] = [
        *definition.indexes,
        *definition.triggers,
        *definition.statistics,
    ]
    constraints = {None, *(constraint.name for constraint in definition.constraints)}
    unread = [part.name for part in parts if part.body is None]
    unread += [index.name for index in definition.indexes if index.constraint_name not in constraints]
    if unread:
        raise Unread(
            f'cannot read the definition of "{definition.name}"',
            detail=f"Not understood: {', '.join(unread)}.",
            hint="Please report this with the output of pg_dump --schema-only for the table.",
        )
