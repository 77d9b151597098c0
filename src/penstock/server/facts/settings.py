"""Server settings by SQL: reads them with their sources, changes them by ALTER SYSTEM, and reloads the server.

A reload is awaited until it has taken effect. Other packages decide what should change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from psycopg import sql

from penstock.errors import ServerError
from penstock.frozen import frozen
from penstock.model.server.identity import ServerIdentity
from penstock.model.server.inspection import Archiver, Mark, Slot
from penstock.model.server.settings import SettingsFacts, SettingsRights, SettingState
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.facts.recognise import recognise_flavour, recognise_managers
from penstock.server.sql.queries import fetch_many, fetch_one, fetch_rows

# Even a busy postmaster reloads within milliseconds. If it has not reloaded after this time, it found an error in the
# files.
_RELOAD_TIMEOUT_S = 10.0
_RELOAD_LOOK_S = 0.01


@frozen
class FileLine:
    """The row of settings_lines.sql."""

    # None for a line with an error.
    name: str | None
    text: str | None
    file: str
    line: int
    error: str | None


def read_facts(connection: Connection) -> SettingsFacts:
    """Return the facts for deciding about settings, except how much a load will write. Raises ServerError."""
    with translate_errors("reading settings"):
        marks, rights, settings, slots, archivers = fetch_many(
            connection,
            (
                ("inspect_marks", Mark),
                ("settings_rights", SettingsRights),
                ("settings_state", SettingState),
                ("inspect_slots", Slot),
                ("inspect_archiver", Archiver),
            ),
        )
        is_in_recovery, cluster_name = fetch_one(
            connection, "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('cluster_name')"
        )
    return SettingsFacts(
        version_num=connection.info.server_version,
        is_in_recovery=is_in_recovery,
        flavour=recognise_flavour(marks),
        managers=recognise_managers(marks, cluster_name=cluster_name),
        rights=rights[0],
        settings=tuple(settings),
        slots=tuple(slots),
        archiver=next(iter(archivers), None),
    )


def read_settings(connection: Connection) -> dict[str, SettingState]:
    """Return the settings that profiles may change, by name. Raises ServerError."""
    with translate_errors("reading settings"):
        return {state.name: state for state in fetch_rows(connection, "settings_state", SettingState)}


def read_identity(connection: Connection) -> ServerIdentity:
    """Return the server's identity. Raises ServerError."""
    with translate_errors("reading the server's identity"):
        (identity,) = fetch_rows(connection, "server_identity", ServerIdentity)
    return identity


def read_lines(connection: Connection) -> dict[str, FileLine]:
    """Return the lines of postgresql.auto.conf for the settings that leases change.

    Needs pg_file_settings. Raises ServerError, also if a line of the server's configuration files is invalid, because a
    reload would then change nothing.
    """
    with translate_errors("reading postgresql.auto.conf"):
        rows = fetch_rows(connection, "settings_lines", FileLine)
    wrong = next((row for row in rows if row.name is None), None)
    if wrong is not None:
        raise ServerError(
            "the server's configuration files have an invalid line",
            detail=f"{wrong.file} line {wrong.line}: {wrong.error}.",
            hint="Correct it: until then a reload changes nothing.",
        )
    return {row.name: row for row in rows if row.name is not None}


def alter_system(connection: Connection, name: str, text: str | None) -> None:
    """Write a setting to postgresql.auto.conf, or remove it.

    A reload makes the change effective. Raises TargetError.

    Does not work in a transaction. Needs ALTER SYSTEM on the setting.
    """
    if text is None:
        statement = sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name))
    else:
        statement = sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(text))
    with translate_errors(f"changing {name}"):
        connection.execute(statement)


def reload(
    connection: Connection,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make the server reload its configuration files, and wait until this session has. Needs pg_reload_conf().

    Every process of the server reloads at the same time. If the load time of this session's process changes, the files
    were read and are valid. Raises ServerError if the load time does not change in time.
    """
    loaded = "SELECT pg_catalog.pg_conf_load_time()"
    with translate_errors("reloading the server's configuration"):
        before = connection.execute(loaded).fetchone()
        connection.execute("SELECT pg_catalog.pg_reload_conf()")
        began_s = clock()
        while connection.execute(loaded).fetchone() == before:
            if clock() - began_s > _RELOAD_TIMEOUT_S:
                raise ServerError(
                    "the server did not reload its configuration files",
                    detail=f"A reload was requested {_RELOAD_TIMEOUT_S:.0f} s ago.",
                    hint="See its log: a line of the files may be wrong.",
                )
            sleep(_RELOAD_LOOK_S)


def find_unchanged(connection: Connection, wanted: Mapping[str, float]) -> list[SettingState]:
    """Return the settings that do not have the wanted number. Raises ServerError."""
    found = read_settings(connection)
    return [found[name] for name, value in wanted.items() if abs(float(found[name].value) - value) > 1e-9]
