"""A new table beside an old one: made bare, finished after its rows are in it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from psycopg import errors, sql

from penstock.errors import TargetError
from penstock.model.table import TableName
from penstock.server.ddl.capture import capture_table, read_states
from penstock.server.ddl.compose_parts import (
    compose_checks,
    compose_foreign_key,
    compose_index,
    compose_index_marks,
    compose_row_security,
    compose_statistics,
    compose_trigger,
)
from penstock.server.ddl.compose_table import compose_column_settings, compose_create
from penstock.server.ddl.compose_words import (
    compose_comments,
    compose_grant,
    compose_labels,
    compose_owner_grants,
    compose_revokes,
    order_grants,
)
from penstock.server.ddl.names import choose_names
from penstock.server.ddl.session import local_settings, run_all
from penstock.server.errors import in_transaction, translate_errors
from penstock.server.tables import check_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from penstock.server.connection import Connection
    from penstock.server.ddl.definition import TableDefinition
    from penstock.server.ddl.names import WorkingNames

_log = logging.getLogger(__name__)


def _at_once(act: Callable[[], object]) -> object:
    return act()


def create_replacement(connection: Connection, definition: TableDefinition, *, name: str) -> int:
    """Make the bare new table in the old one's schema and return its oid.

    It has what loading needs: columns with defaults, identity and generated values, NOT NULL, CHECK (whose functions
    are called as the rows come, with the user's search_path), storage, options. It belongs to the old table's owner,
    and nobody else may read it. Values that identity columns draw go on from where the old ones stood; a serial column
    draws from the old sequence. Needs CREATE on the schema and the owner's role. Raises TargetError, ServerError.
    """
    new = TableName(schema=definition.table.schema, name=name)
    check_names(new, [])
    table = sql.Identifier(definition.table.schema, name)
    owner = sql.Identifier(definition.table.owner)
    with (
        translate_errors(f"creating table {new}"),
        local_settings(connection, default_tablespace=""),
    ):
        connection.execute(compose_create(definition, name))
        connection.execute(sql.SQL("ALTER TABLE {} OWNER TO {}").format(table, owner))
        row = connection.execute("SELECT %s::regclass::oid", [table.as_string(connection)]).fetchone()
        assert row is not None
        replacement = capture_table(connection, row[0])
        names = choose_names(definition, replacement)
        run_all(connection, compose_revokes(replacement, names))
        run_all(connection, compose_owner_grants(definition, names))
        for column in definition.columns:
            run_all(connection, compose_column_settings(column, table))
        run_all(connection, compose_checks(definition, names))
        note = f"made by penstock to replace {definition.name}; not finished"
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, sql.Literal(note)))
        _continue_identities(connection, definition, replacement)
    _log.info("created table %s to replace %s", new, definition.name)
    return replacement.oid


def enforce_early(
    connection: Connection, definition: TableDefinition, oid: int, *, indexes: Collection[str], with_foreign_keys: bool
) -> None:
    """Give the new table, empty as yet, the indexes of these names, with their constraints.

    Their functions are called as the rows come, with the user's search_path: an empty table calls none.
    `with_foreign_keys`: these too, which locks the referenced tables until the transaction ends. finish_replacement
    adds the rest. Raises TargetError, ServerError.
    """
    replacement = capture_table(connection, oid)
    names = choose_names(definition, replacement)
    with translate_errors(f"preparing table {replacement.name}"):
        try:
            with in_transaction(connection):
                _make_keys(connection, definition, replacement, names, only=indexes)
        except (errors.UndefinedFunction, errors.UndefinedTable) as exc:
            # The planner puts what simple functions in SQL do in their place, even for an empty table.
            raise TargetError(
                f'cannot make the indexes of "{definition.name}" again: {exc.diag.message_primary}',
                detail=exc.diag.context,
                hint="Give the function its search_path (ALTER FUNCTION ... SET search_path) and run the load again.",
            ) from exc
        if with_foreign_keys:
            _add_foreign_keys(connection, definition, replacement, names, _at_once)


def describe_replacement(definition: TableDefinition, *, name: str) -> str:
    """Return the statement that makes the bare new table, for a subscriber's psql."""
    return compose_create(definition, name).as_string(None) + ";"


def finish_replacement(
    connection: Connection,
    definition: TableDefinition,
    oid: int,
    *,
    with_locks: Callable[[Callable[[], object]], object] = _at_once,
) -> None:
    """Give the loaded table all that the old one has, but for rules, policies, publications and its names.

    In autocommit mode each step is a transaction: indexes, constraints, statistics and triggers; each foreign key, and
    again its validation, so that writers to the referenced table wait only for the moment of adding it; at last row
    security, grants and comments. `with_locks` is called to add each foreign key, for a lock on the referenced table:
    it may call with_lock_retries. May be called again after an error: what is there is kept. Raises DataError where
    the rows violate a constraint, TargetError, ServerError.
    """
    replacement = capture_table(connection, oid)
    names = choose_names(definition, replacement)
    with translate_errors(f"finishing table {replacement.name}"):
        with in_transaction(connection):
            _make_keys(connection, definition, replacement, names)
            _make_other_parts(connection, definition, replacement, names)
        _add_foreign_keys(connection, definition, replacement, names, with_locks)
        with in_transaction(connection):
            # After the foreign keys: forced row security without a policy would hide all rows from their validation.
            run_all(connection, compose_row_security(definition, names))
            _set_grants(connection, definition, replacement, names)
            run_all(connection, compose_comments(definition, names))
            run_all(connection, compose_labels(definition, names))
    _log.info("finished table %s", replacement.name)


def _continue_identities(connection: Connection, definition: TableDefinition, replacement: TableDefinition) -> None:
    new = {sequence.column: sequence for sequence in replacement.identity_sequences}
    for sequence, state in zip(
        definition.identity_sequences, read_states(connection, definition.identity_sequences), strict=True
    ):
        set_state = "SELECT pg_catalog.setval(%s::oid::regclass, %s, %s)"
        connection.execute(set_state, [new[sequence.column].oid, state.last_value, state.is_called])


def _make_keys(
    connection: Connection,
    definition: TableDefinition,
    replacement: TableDefinition,
    names: WorkingNames,
    *,
    only: Collection[str] | None = None,
) -> None:
    """Make the indexes with their constraints, and the check constraints, that are not there yet."""
    constraints = {constraint.name: constraint for constraint in definition.constraints}
    present = {index.name for index in replacement.indexes}
    for index in definition.indexes:
        if names.indexes[index.name] in present or (only is not None and index.name not in only):
            continue
        _log.info("making index %s of %s", index.name, definition.name)
        constraint = constraints[index.constraint_name] if index.constraint_name else None
        with local_settings(connection, default_tablespace=index.tablespace):
            run_all(connection, compose_index(index, constraint, names))
    has_constraints = {constraint.name for constraint in replacement.constraints}
    run_all(connection, compose_checks(definition, names, but=has_constraints))


def _make_other_parts(
    connection: Connection, definition: TableDefinition, replacement: TableDefinition, names: WorkingNames
) -> None:
    run_all(connection, compose_index_marks(definition, names))
    has_statistics = {(statistics.schema, statistics.name) for statistics in replacement.statistics}
    for statistics in definition.statistics:
        place = statistics.schema, statistics.name
        if (statistics.schema, names.statistics[place]) not in has_statistics:
            run_all(connection, compose_statistics(statistics, names))
    has_triggers = {trigger.name for trigger in replacement.triggers}
    for trigger in definition.triggers:
        if trigger.name not in has_triggers:
            run_all(connection, compose_trigger(trigger, names))


def _set_grants(
    connection: Connection, definition: TableDefinition, replacement: TableDefinition, names: WorkingNames
) -> None:
    run_all(connection, compose_revokes(replacement, names))
    for grant in order_grants(definition.grants):
        statement = compose_grant(grant, definition, names)
        if grant.is_by_owner:
            connection.execute(statement)
        else:
            # Who grants is who runs the statement; a superuser or owner would stand there as the owner.
            with local_settings(connection, role=grant.grantor):
                connection.execute(statement)


def _add_foreign_keys(
    connection: Connection,
    definition: TableDefinition,
    replacement: TableDefinition,
    names: WorkingNames,
    with_locks: Callable[[Callable[[], object]], object],
) -> None:
    present = {constraint.name: constraint for constraint in replacement.constraints}
    for constraint in definition.constraints:
        if constraint.kind != "f":
            continue
        add, validate = compose_foreign_key(constraint, definition, names)
        if constraint.name not in present:
            with_locks(partial(connection.execute, add))
        if validate is not None and not (constraint.name in present and present[constraint.name].is_validated):
            _log.info("validating foreign key %s of %s", constraint.name, definition.name)
            connection.execute(validate)
