"""Pauses autovacuum of a table during a load, and then restores the table's storage parameter autovacuum_enabled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from psycopg import sql

from penstock.frozen import frozen
from penstock.server.changes.kind import TableRequest, TableSwitch
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from penstock.model.load.shape import Change
    from penstock.server.changes.look import State

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


@frozen
class OptionsRow:
    """The row of changes_autovacuum.sql."""

    relation_oid: int
    options: list[str]
    has_toast: bool
    toast_options: list[str]


def _find(connection: Connection, request: TableRequest) -> Sequence[Change]:
    if request.rules.autovacuum != "pause":
        return []
    with translate_errors(f"looking up the storage parameters of {request.table.name}"):
        rows = fetch_rows(connection, "changes_autovacuum", OptionsRow, oid=request.table.oid)
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


def _look(connection: Connection, change: Change) -> State:
    rows = fetch_rows(connection, "changes_autovacuum", OptionsRow, oid=change.relation_oid)
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
    find=_find,
    is_whole=_is_whole,
    state=_look,
    compose_change=lambda change: _compose(change, OFF),
    compose_restore=lambda _, change: _compose(change, change.record["value"]),
)
