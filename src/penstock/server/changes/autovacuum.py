"""Autovacuum that is paused while a table is loaded: its storage parameter, restored as spelled, in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from psycopg import sql

from penstock.server.changes.kind import TableSwitch
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model.load.shape import Change
    from penstock.server.changes.kind import Want
    from penstock.server.changes.look import State
    from penstock.server.connect.connection import Connection

# The name of a record of the TOAST table's parameter begins so, as ALTER TABLE spells it.
_TOAST = "toast"

AUTOVACUUM = "autovacuum_enabled"

# What loading sets it to, as the server then has it.
OFF = "false"

# As parse_bool_with_len reads them, in src/backend/utils/adt/bool.c.
_FALSE = ("false", "fals", "fal", "fa", "f", "off", "of", "no", "n", "0")


def is_off(options: Sequence[str], name: str = AUTOVACUUM) -> bool:
    """Return whether a boolean parameter is off.

    >>> is_off(["fillfactor=70", "autovacuum_enabled=Off"]), is_off([])
    (True, False)
    """
    value = _by_name(options).get(name)
    return value is not None and value.lower() in _FALSE


def plan_restore(now: Sequence[str], before: Sequence[str], name: str = AUTOVACUUM) -> list[tuple[str, str]] | None:
    """Return what to set, in this order, so that a parameter is as before; None where it is to be unset.

    SET moves what it sets to the end, and pg_dump writes parameters in their order: so all are set where that is needed
    to have the order back. What others have set meanwhile stays. Nothing is to be done where it is not OFF any more.

    >>> plan_restore(["fillfactor=70", "autovacuum_enabled=false"], ["autovacuum_enabled=on", "fillfactor=70"])
    [('autovacuum_enabled', 'on'), ('fillfactor', '70')]
    >>> plan_restore(["fillfactor=70", "autovacuum_enabled=false"], ["fillfactor=70"]) is None
    True
    """
    present, past = _by_name(now), _by_name(before)
    if present.get(name) != OFF:
        return []
    if name not in past:
        return None
    values = present | {name: past[name]}
    order = [key for key in past if key in values] + [key for key in values if key not in past]
    if [key for key in present if key != name] + [name] == order:
        return [(name, past[name])]
    return [(key, values[key]) for key in order]


def _by_name(options: Sequence[str]) -> dict[str, str]:
    return {key: value for key, _, value in (option.partition("=") for option in options)}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsRow:
    """The row of changes_autovacuum.sql."""

    relation_oid: int
    options: list[str]
    has_toast: bool
    toast_options: list[str]


def _find(connection: Connection, want: Want) -> Sequence[Change]:
    if want.rules.autovacuum != "pause":
        return []
    with translate_errors(f"looking up the storage parameters of {want.table.name}"):
        rows = fetch_rows(connection, "changes_autovacuum", OptionsRow, oid=want.table.oid)
    return [
        want.change("autovacuum", name, {"options": options}, relation_oid=row.relation_oid)
        for row in rows
        for name, options, is_there in (
            (AUTOVACUUM, row.options, True),
            (f"{_TOAST}.{AUTOVACUUM}", row.toast_options, row.has_toast),
        )
        if is_there and not is_off(options)
    ]


def _is_whole(change: Change) -> bool:
    options = cast("object", change.record.get("options"))
    is_list = isinstance(options, list) and all(isinstance(option, str) and "=" in option for option in options)
    return is_list and change.name in (AUTOVACUUM, f"{_TOAST}.{AUTOVACUUM}")


def _look(connection: Connection, change: Change) -> State:
    options = _find_options(connection, change)
    if options is None:
        return "gone"
    return "there" if plan_restore(options, change.record["options"]) == [] else "absent"


def _compose_restore(connection: Connection, change: Change) -> sql.Composable:
    settings = plan_restore(_find_options(connection, change) or [], change.record["options"])
    if settings is None:
        return sql.SQL("RESET ({})").format(_option(change, AUTOVACUUM))
    return _compose_set(change, settings)


def _find_options(connection: Connection, change: Change) -> list[str] | None:
    rows = fetch_rows(connection, "changes_autovacuum", OptionsRow, oid=change.relation_oid)
    row = next((row for row in rows if row.relation_oid == change.relation_oid), None)
    if row is None:
        return None
    if change.name.startswith(f"{_TOAST}."):
        return row.toast_options if row.has_toast else None
    return row.options


def _compose_set(change: Change, settings: Sequence[tuple[str, str]]) -> sql.Composed:
    assignments = [sql.SQL("{} = {}").format(_option(change, name), sql.Literal(value)) for name, value in settings]
    return sql.SQL("SET ({})").format(sql.SQL(", ").join(assignments))


def _option(change: Change, name: str) -> sql.Identifier:
    return sql.Identifier(*change.name.split(".")[:-1], name)


AUTOVACUUM_PAUSE = TableSwitch(
    name="autovacuum",
    lock_mode="SHARE UPDATE EXCLUSIVE",
    find=_find,
    is_whole=_is_whole,
    state=_look,
    compose_change=lambda change: _compose_set(change, [(AUTOVACUUM, OFF)]),
    compose_restore=_compose_restore,
)
