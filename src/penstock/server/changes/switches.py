"""Switches of a table that loading may turn off: the user's triggers, and autovacuum. Each is written down before.

Put back is the state that was, to the letter: a trigger's O, A or R, a storage parameter's spelling and place. What
somebody has switched meanwhile is theirs, and left as it is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from psycopg import sql

from penstock.errors import TargetError
from penstock.model.load.shape import Change
from penstock.server.changes.options import AUTOVACUUM, OFF, is_off, plan_restore
from penstock.server.changes.parts import spoilt_record
from penstock.server.changes.rebuild import as_owner
from penstock.server.changes.records import delete_changes
from penstock.server.connect.errors import in_transaction, translate_errors
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.server.table import TableFacts, TableName
    from penstock.server.changes.look import State
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)

SWITCHES = ("trigger", "autovacuum")

# Bits of pg_trigger.tgtype.
ON_INSERT, ON_DELETE, ON_UPDATE = 4, 8, 16

_DISABLED = "D"
_ENABLE = {"O": sql.SQL("ENABLE"), "R": sql.SQL("ENABLE REPLICA"), "A": sql.SQL("ENABLE ALWAYS")}

# The name of a record of the TOAST table's parameter begins so, as ALTER TABLE spells it.
_TOAST = "toast"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRow:
    """The row of changes_triggers.sql; `state` is pg_trigger.tgenabled."""

    relation_oid: int
    schema: str
    relation: str
    name: str
    state: str
    type: int
    function_oid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsRow:
    """The row of changes_autovacuum.sql."""

    relation_oid: int
    schema: str
    relation: str
    options: list[str]
    has_toast: bool
    toast_options: list[str]


# ---------------------------------------------------------------- off


def find_triggers(connection: Connection, table: TableFacts, *, events: int, load_id: str) -> list[Change]:
    """Return records of the enabled triggers of a table and its partitions that these events fire. Raises ServerError.

    `events` are bits of tgtype.
    """
    with translate_errors(f"looking up the triggers of {table.name}"):
        rows = fetch_rows(connection, "changes_triggers", TriggerRow, oid=table.oid, events=events)
    return [
        Change(
            target_oid=table.oid,
            target=table.name,
            kind="trigger",
            relation_oid=row.relation_oid,
            name=row.name,
            record=_trigger_record(row),
            load_id=load_id,
        )
        for row in rows
        if row.state != _DISABLED
    ]


def find_autovacuum(
    connection: Connection, oid: int, *, target_oid: int, target: TableName, load_id: str
) -> list[Change]:
    """Return records of table `oid` and its partitions, as far as autovacuum is not off there already.

    It is the target itself, or one of its partitions. Raises ServerError.
    """
    with translate_errors(f"looking up the storage parameters of {target}"):
        rows = fetch_rows(connection, "changes_autovacuum", OptionsRow, oid=oid)
    names = {
        (row.relation_oid, name): options
        for row in rows
        for name, options, is_there in (
            (AUTOVACUUM, row.options, True),
            (f"{_TOAST}.{AUTOVACUUM}", row.toast_options, row.has_toast),
        )
        if is_there and not is_off(options)
    }
    return [
        Change(
            target_oid=target_oid,
            target=target,
            kind="autovacuum",
            relation_oid=relation_oid,
            name=name,
            record={"options": options},
            load_id=load_id,
        )
        for (relation_oid, name), options in names.items()
    ]


def switch_off(connection: Connection, changes: Sequence[Change]) -> None:
    """Switch off what the changes tell of, in the caller's transaction; they are written down.

    Needs the owner of each table. Raises TargetError where something is not as it was written down, ServerError.
    """
    for change in changes:
        with translate_errors(f"disabling {change.kind} {change.name} of {change.target}"):
            relation = _lock(connection, change)
            if relation is None or look_at_switch(connection, change) != "there":
                raise TargetError(
                    f'{change.kind} "{change.name}" of table "{change.target}" was altered meanwhile',
                    hint="Run the load again.",
                )
            what = (
                sql.SQL("DISABLE TRIGGER {}").format(sql.Identifier(change.name))
                if change.kind == "trigger"
                else _compose_set(change, [(AUTOVACUUM, OFF)])
            )
            connection.execute(sql.SQL("ALTER TABLE ONLY {} {}").format(relation, what))
    _log.info("disabled %s", ", ".join(change.name for change in changes))


# ---------------------------------------------------------------- as it was


def look_at_switch(connection: Connection, change: Change) -> State:
    """Return whether a switch is "there", as it was or as somebody has set it since, "absent", or "gone".

    Raises TargetError for a record that is not whole, ServerError.
    """
    _check_record(change)
    if change.kind == "trigger":
        found = _find_trigger(connection, change)
        if found is None:
            return "gone"
        is_ours = found.state == _DISABLED and _trigger_record(found) | {"state": None} == dict(change.record) | {
            "state": None
        }
        return "absent" if is_ours else "there"
    options = _find_options(connection, change)
    if options is None:
        return "gone"
    return "there" if plan_restore(options, change.record["options"]) == [] else "absent"


def put_switch_back(connection: Connection, schema: str, change: Change) -> None:
    """Put a switch back as it was, as the role that turned it off, and remove its record; in one transaction.

    `schema` is the ledger's. The caller has shape_lock: nobody of ours switches it off meanwhile, so that one which is
    on needs no other lock. Raises TargetError, ServerError.
    """
    what = f'restoring {change.kind} "{change.name}" of "{change.target}"'
    with in_transaction(connection, what), as_owner(connection, change):
        is_off = look_at_switch(connection, change) == "absent"
        relation = _lock(connection, change) if is_off else None
        if relation is not None and look_at_switch(connection, change) == "absent":
            action = _compose_trigger(change) if change.kind == "trigger" else _compose_options(connection, change)
            connection.execute(sql.SQL("ALTER TABLE ONLY {} {}").format(relation, action))
        delete_changes(connection, schema, [change])
    _log.info('restored %s "%s" of %s', change.kind, change.name, change.target)


def _compose_trigger(change: Change) -> sql.Composed:
    return sql.SQL("{} TRIGGER {}").format(_ENABLE[change.record["state"]], sql.Identifier(change.name))


def _compose_options(connection: Connection, change: Change) -> sql.Composed:
    settings = plan_restore(_find_options(connection, change) or [], change.record["options"])
    if settings is None:
        return sql.SQL("RESET ({})").format(_option(change, AUTOVACUUM))
    return _compose_set(change, settings)


def _compose_set(change: Change, settings: Sequence[tuple[str, str]]) -> sql.Composed:
    assignments = [sql.SQL("{} = {}").format(_option(change, name), sql.Literal(value)) for name, value in settings]
    return sql.SQL("SET ({})").format(sql.SQL(", ").join(assignments))


def _option(change: Change, name: str) -> sql.Identifier:
    return sql.Identifier(_TOAST, name) if _is_toast(change) else sql.Identifier(name)


def _is_toast(change: Change) -> bool:
    return change.name.startswith(f"{_TOAST}.")


# ---------------------------------------------------------------- what is there


def _lock(connection: Connection, change: Change) -> sql.Identifier | None:
    """Lock a table as ALTER TABLE will, so that what is read next stays so; None where it is gone."""
    row = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_class AS c"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = %s",
        [change.relation_oid],
    ).fetchone()
    if row is None:
        return None
    mode = sql.SQL("SHARE ROW EXCLUSIVE" if change.kind == "trigger" else "SHARE UPDATE EXCLUSIVE")
    relation = sql.Identifier(*row)
    connection.execute(sql.SQL("LOCK TABLE ONLY {} IN {} MODE").format(relation, mode))
    return relation


def _find_trigger(connection: Connection, change: Change) -> TriggerRow | None:
    every = ON_INSERT | ON_DELETE | ON_UPDATE
    rows = fetch_rows(connection, "changes_triggers", TriggerRow, oid=change.relation_oid, events=every)
    at = (change.relation_oid, change.name)
    return next((row for row in rows if (row.relation_oid, row.name) == at), None)


def _find_options(connection: Connection, change: Change) -> list[str] | None:
    rows = fetch_rows(connection, "changes_autovacuum", OptionsRow, oid=change.relation_oid)
    row = next((row for row in rows if row.relation_oid == change.relation_oid), None)
    if row is None:
        return None
    if _is_toast(change):
        return row.toast_options if row.has_toast else None
    return row.options


def _trigger_record(row: TriggerRow) -> dict[str, Any]:
    return {"state": row.state, "type": row.type, "function_oid": row.function_oid}


def _check_record(change: Change) -> None:
    """Raise TargetError for a record that is not what was written: what is composed from it is run."""
    record = change.record
    if change.kind == "trigger":
        is_whole = record.get("state") in _ENABLE
    else:
        options = cast("object", record.get("options"))
        is_whole = isinstance(options, list) and all(isinstance(option, str) and "=" in option for option in options)
        is_whole = is_whole and change.name in (AUTOVACUUM, f"{_TOAST}.{AUTOVACUUM}")
    if not is_whole:
        raise spoilt_record(change)
