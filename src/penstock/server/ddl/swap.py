"""Puts a finished replacement in the old table's place: lock, look again, drop, rename, look again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import ServerError, TargetError
from penstock.server.ddl.capture import capture_table, read_states
from penstock.server.ddl.compose_parts import compose_publications, compose_renames, compose_rules_and_policies
from penstock.server.ddl.compose_words import compose_late_comments
from penstock.server.ddl.definition import find_differences
from penstock.server.ddl.dependencies import find_obstacles, refuse_obstacles
from penstock.server.ddl.names import WorkingNames, choose_names
from penstock.server.ddl.session import local_settings, run_all
from penstock.server.errors import in_transaction

if TYPE_CHECKING:
    from penstock.server.connection import Connection
    from penstock.server.ddl.definition import SequenceState, TableDefinition

_log = logging.getLogger(__name__)

# Whoever waits for the old table now may hold what the drop needs next. That is a deadlock, and after deadlock_timeout
# (1 s) their query would be the one cancelled: so we give way long before.
_FURTHER_LOCKS_TIMEOUT = "100ms"


def swap_replacement(connection: Connection, definition: TableDefinition, oid: int) -> None:
    """Drop the old table and give its name, and all its parts' names, to the new one.

    Belongs into the caller's transaction, which commits it together with its own record; readers wait for that and
    then see the new table. Nothing is dropped by CASCADE. At the end the new table is captured and must equal the
    definition: what could not be carried over is an error, not a loss. Dropping the old table's foreign keys locks
    the referenced tables too (conflicts.find_references names them). Raises TargetError where the old table has
    changed since it was captured or has got dependents, ServerError (55P03 where a lock could not be had in time).
    """
    with in_transaction(connection, f"putting the new table in the place of {definition.name}"):
        replacement = capture_table(connection, oid)
        _lock_old(connection, definition)
        with local_settings(connection, lock_timeout=_FURTHER_LOCKS_TIMEOUT):
            _replace_old(connection, definition, replacement)
    _log.info("table %s is replaced", definition.name)


def choose_state(old: SequenceState, new: SequenceState, *, increment: int) -> SequenceState:
    """Return which of two states of a sequence is further along, so that no value is given out again."""
    direction = 1 if increment > 0 else -1
    return max(old, new, key=lambda state: (state.last_value * direction, state.is_called))


def _replace_old(connection: Connection, definition: TableDefinition, replacement: TableDefinition) -> None:
    working, final = choose_names(definition, replacement), _final_names(definition)
    _hand_over_sequences(connection, definition, replacement, working)
    connection.execute(sql.SQL("DROP TABLE {}").format(_old_table(definition)))
    run_all(connection, compose_renames(definition, replacement, working))
    run_all(connection, compose_rules_and_policies(definition, final))
    run_all(connection, compose_late_comments(definition, final))
    run_all(connection, compose_publications(definition, final))
    _check_result(definition, capture_table(connection, replacement.oid))


def _lock_old(connection: Connection, definition: TableDefinition) -> None:
    """Lock the old table against everybody, then make sure that it is still the one that was captured."""
    connection.execute(sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(_old_table(definition)))
    now = capture_table(connection, definition.oid, name=definition.name)
    if differences := find_differences(definition, now):
        raise TargetError(
            f'table "{definition.name}" was altered while its replacement was loaded',
            detail=f"Changed: {', '.join(differences)}.",
            hint="Run the load again: it then carries the table as it is now.",
        )
    refuse_obstacles(definition.name, find_obstacles(connection, definition))


def _hand_over_sequences(
    connection: Connection, definition: TableDefinition, replacement: TableDefinition, names: WorkingNames
) -> None:
    for sequence in definition.shared_sequences:
        column = sql.Identifier(names.schema, names.table, sequence.column)
        owned = sql.SQL("ALTER SEQUENCE {} OWNED BY {}").format(sql.SQL(sequence.quoted_name), column)
        connection.execute(owned)
    new = {sequence.column: sequence for sequence in replacement.identity_sequences}
    for sequence in definition.identity_sequences:
        counterpart = new[sequence.column]
        (old_state,) = read_states(connection, [sequence])
        (new_state,) = read_states(connection, [counterpart])
        state = choose_state(old_state, new_state, increment=sequence.increment)
        set_state = "SELECT pg_catalog.setval(%s::oid::regclass, %s, %s)"
        connection.execute(set_state, [counterpart.oid, state.last_value, state.is_called])


def _old_table(definition: TableDefinition) -> sql.Identifier:
    return sql.Identifier(definition.table.schema, definition.table.name)


def _final_names(definition: TableDefinition) -> WorkingNames:
    """Return the names that all parts have after the swap."""
    return WorkingNames(
        schema=definition.table.schema,
        table=definition.table.name,
        indexes={index.name: index.name for index in definition.indexes},
        statistics={(part.schema, part.name): part.name for part in definition.statistics},
        sequences={sequence.column: sequence.quoted_name for sequence in definition.identity_sequences},
    )


def _check_result(definition: TableDefinition, result: TableDefinition) -> None:
    if differences := find_differences(definition, result):
        raise ServerError(
            f'the new table for "{definition.name}" is not like the old one',
            detail=f"They differ in: {', '.join(differences)}. The old table is left as it was.",
            hint="Load with --mode truncate, which keeps the table.",
        )
