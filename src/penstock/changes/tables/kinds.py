"""The kinds of change of a table: two switches, and the list of all kinds in the order of restoring.

The switches are user triggers, which are disabled, and autovacuum, which is paused. Each is restored to its prior
state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from psycopg import sql

from penstock.changes.tables.indexes import IndexesAndKeys
from penstock.changes.tables.kind import Switch, TableKind, TableRequest, TableSwitch
from penstock.changes.tables.look import State
from penstock.changes.values import Change
from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows
from penstock.core.values.mode import EVENT_BITS

_DISABLED = "D"
_ENABLE = {"O": sql.SQL("ENABLE"), "R": sql.SQL("ENABLE REPLICA"), "A": sql.SQL("ENABLE ALWAYS")}


@slotted
class TriggerRow:
    """The row of triggers.sql: a user trigger of a table or a partition that fires on some of the given events."""

    relation_oid: int
    name: str
    # pg_trigger.tgenabled.
    state: str
    type: int
    function_oid: int
    # Whether it fires only as its copies in the partitions. A partition that is created or attached gets its copy with
    # this trigger's state.
    is_copied: bool

    def record(self) -> dict[str, Any]:
        """Return what `Change.record` stores about the trigger."""
        return {"state": self.state, "type": self.type, "function_oid": self.function_oid}


def _find(connection: Connection, request: TableRequest) -> Sequence[Change]:
    if request.rules.triggers != "disable":
        return []
    with translate_errors(f"looking up the triggers of {request.table.name}"):
        rows = fetch_rows(
            connection,
            "changes/triggers",
            TriggerRow,
            oid=request.table.oid,
            events=sum(EVENT_BITS[event] for event in request.job.landing.events),
        )
    return [
        request.change("trigger", row.name, row.record(), relation_oid=row.relation_oid)
        for row in rows
        # A trigger that partitions copy stays enabled: else a partition that is created meanwhile would keep its copy
        # disabled for ever.
        if row.state != _DISABLED and not row.is_copied
    ]


def _look(connection: Connection, change: Change) -> State:
    every = sum(EVENT_BITS.values())
    rows = fetch_rows(connection, "changes/triggers", TriggerRow, oid=change.relation_oid, events=every)
    at = (change.relation_oid, change.name)
    found = next((row for row in rows if (row.relation_oid, row.name) == at), None)
    if found is None:
        return "gone"
    is_same = found.record() | {"state": None} == dict(change.record) | {"state": None}
    return "absent" if is_same and found.state == _DISABLED else "there"


TRIGGERS = TableSwitch(
    name="trigger",
    lock_mode="SHARE ROW EXCLUSIVE",
    find=_find,
    is_whole=lambda change: change.record.get("state") in _ENABLE,
    state=_look,
    compose_change=lambda change: sql.SQL("DISABLE TRIGGER {}").format(sql.Identifier(change.name)),
    compose_restore=lambda _, change: sql.SQL("{} TRIGGER {}").format(
        _ENABLE[change.record["state"]], sql.Identifier(change.name)
    ),
    words=lambda change: f"trigger {change.name}",
)


# The prefix of the TOAST table's parameter in the name of a record, as in ALTER TABLE.
_TOAST = "toast"

AUTOVACUUM = "autovacuum_enabled"

# The value that a load sets, as the server stores it.
OFF = "false"

# The texts that parse_bool_with_len in src/backend/utils/adt/bool.c reads as false.
_FALSE = ("false", "fals", "fal", "fa", "f", "off", "of", "no", "n", "0")


def is_off(options: Sequence[str]) -> bool:
    """Return whether storage parameters turn autovacuum off.

    >>> is_off(["fillfactor=70", "autovacuum_enabled=Off"]), is_off([])
    (True, False)
    """
    value = _by_name(options).get(AUTOVACUUM)
    return value is not None and value.lower() in _FALSE


def _by_name(options: Sequence[str]) -> dict[str, str]:
    return {key: value for key, _, value in (option.partition("=") for option in options)}


@slotted
class OptionsRow:
    """The row of autovacuum.sql: the storage parameters of a table or a partition, and those of its TOAST table."""

    relation_oid: int
    options: list[str]
    has_toast: bool
    toast_options: list[str]


def _find_autovacuum(connection: Connection, request: TableRequest) -> Sequence[Change]:
    if request.rules.autovacuum != "pause":
        return []
    with translate_errors(f"looking up the storage parameters of {request.table.name}"):
        rows = fetch_rows(connection, "changes/autovacuum", OptionsRow, oid=request.table.oid)
    return [
        request.change("autovacuum", name, {"value": _by_name(options).get(AUTOVACUUM)}, relation_oid=row.relation_oid)
        for row in rows
        for name, options, exists in (
            (AUTOVACUUM, row.options, True),
            (f"{_TOAST}.{AUTOVACUUM}", row.toast_options, row.has_toast),
        )
        if exists and not is_off(options)
    ]


def _is_whole(change: Change) -> bool:
    value = cast("object", change.record.get("value", 0))
    return (value is None or isinstance(value, str)) and change.name in (AUTOVACUUM, f"{_TOAST}.{AUTOVACUUM}")


def _look_at_autovacuum(connection: Connection, change: Change) -> State:
    rows = fetch_rows(connection, "changes/autovacuum", OptionsRow, oid=change.relation_oid)
    row = next((row for row in rows if row.relation_oid == change.relation_oid), None)
    is_toast = change.name.startswith(f"{_TOAST}.")
    if row is None or (is_toast and not row.has_toast):
        return "gone"
    options = row.toast_options if is_toast else row.options
    # If the value is not the one that the load has set, somebody else has set it, and it is not changed.
    return "absent" if _by_name(options).get(AUTOVACUUM) == OFF else "there"


def _compose(change: Change, value: str | None) -> sql.Composed:
    name = sql.Identifier(*change.name.split("."))
    if value is None:
        return sql.SQL("RESET ({})").format(name)
    return sql.SQL("SET ({} = {})").format(name, sql.Literal(value))


AUTOVACUUM_PAUSE = TableSwitch(
    name="autovacuum",
    lock_mode="SHARE UPDATE EXCLUSIVE",
    find=_find_autovacuum,
    is_whole=_is_whole,
    state=_look_at_autovacuum,
    compose_change=lambda change: _compose(change, OFF),
    compose_restore=lambda _, change: _compose(change, change.record["value"]),
)

# In the order of restoring. Indexes are last, because rebuilding them can take hours or fail.
KINDS: list[TableKind] = [Switch(TRIGGERS), Switch(AUTOVACUUM_PAUSE), IndexesAndKeys()]
