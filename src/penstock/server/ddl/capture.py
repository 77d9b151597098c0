"""Reads a table's full definition from the catalogue, in one look and with every name qualified."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from psycopg import sql

from penstock.errors import TargetError
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
from penstock.server.ddl.session import qualified_names
from penstock.server.errors import translate_errors
from penstock.server.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.server.connection import Connection

Row = TypeVar("Row")


def capture_table(connection: Connection, oid: int) -> TableDefinition:
    """Return the definition of a table.

    Any kind of relation is captured; whether it can be replaced is for find_obstacles to say. The statements see
    one state of the catalogue only where the caller holds a lock on the table. Needs SELECT on the sequences that
    the table's columns own, which their owner has. Raises TargetError where there is no such table, ServerError.
    """
    with translate_errors("reading a table's definition"), qualified_names(connection):

        def fetch(query: str, row_type: type[Row]) -> tuple[Row, ...]:
            return tuple(fetch_rows(connection, query, row_type, oid=oid))

        tables = fetch("ddl_table", TableRow)
        if not tables:
            raise TargetError("the table is gone", detail=f"There is no relation with oid {oid}.")
        sequences = fetch("ddl_sequences", SequenceRow)
        definition = TableDefinition(
            table=tables[0],
            columns=fetch("ddl_columns", ColumnRow),
            sequences=sequences,
            sequence_states=read_states(connection, sequences),
            indexes=fetch("ddl_indexes", IndexRow),
            constraints=fetch("ddl_constraints", ConstraintRow),
            grants=fetch("ddl_grants", Grant),
            policies=fetch("ddl_policies", PolicyRow),
            triggers=fetch("ddl_triggers", TriggerRow),
            rules=fetch("ddl_rules", RuleRow),
            statistics=fetch("ddl_statistics", StatisticsRow),
            publications=fetch("ddl_publications", PublicationRow),
            labels=fetch("ddl_labels", LabelRow),
        )
    _check_read(definition)
    return definition


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
    """Raise TargetError for what the server describes otherwise than the .sql files take apart."""
    parts: list[IndexRow | TriggerRow | StatisticsRow] = [
        *definition.indexes,
        *definition.triggers,
        *definition.statistics,
    ]
    if unread := [part.name for part in parts if part.body is None]:
        raise TargetError(
            f'cannot read the definition of "{definition.name}"',
            detail=f"Not understood: {', '.join(unread)}.",
            hint="Please report this with the output of pg_dump --schema-only for the table.",
        )
