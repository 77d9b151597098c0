"""Disables the user's triggers while a table is loaded, and restores the state of each: O, A or R."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql

from penstock.frozen import frozen
from penstock.server.changes.kind import TableRequest, TableSwitch
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from penstock.model.load.mode import TriggerEvent
    from penstock.model.load.shape import Change
    from penstock.server.changes.look import State

# Bits of pg_trigger.tgtype.
_EVENT_BITS: dict[TriggerEvent, int] = {"INSERT": 4, "DELETE": 8, "UPDATE": 16}

_DISABLED = "D"
_ENABLE = {"O": sql.SQL("ENABLE"), "R": sql.SQL("ENABLE REPLICA"), "A": sql.SQL("ENABLE ALWAYS")}


@frozen
class TriggerRow:
    """The row of changes_triggers.sql."""

    relation_oid: int
    name: str
    # pg_trigger.tgenabled.
    state: str
    type: int
    function_oid: int

    def record(self) -> dict[str, Any]:
        """Return what a record has of the trigger."""
        return {"state": self.state, "type": self.type, "function_oid": self.function_oid}


def _find(connection: Connection, request: TableRequest) -> Sequence[Change]:
    if request.rules.triggers != "disable":
        return []
    with translate_errors(f"looking up the triggers of {request.table.name}"):
        rows = fetch_rows(
            connection,
            "changes_triggers",
            TriggerRow,
            oid=request.table.oid,
            events=sum(_EVENT_BITS[event] for event in request.job.landing.events),
        )
    return [
        request.change("trigger", row.name, row.record(), relation_oid=row.relation_oid)
        for row in rows
        if row.state != _DISABLED
    ]


def _look(connection: Connection, change: Change) -> State:
    every = sum(_EVENT_BITS.values())
    rows = fetch_rows(connection, "changes_triggers", TriggerRow, oid=change.relation_oid, events=every)
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
