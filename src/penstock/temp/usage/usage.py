"""Reports a server's temporary work within an interval: which statements spill and why, and to which tablespaces.

The module also reports the devices of the tablespaces. It reads pg_stat_statements and the settings of
tablespaces.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import rolled_back, translate_errors
from penstock.core.connect.search_path import TO_USERS_SETTINGS
from penstock.core.connect.texts import receive_any_text
from penstock.core.errors import AwsError, PenstockError
from penstock.core.host.disks import find_device, measure_disk, read_counters
from penstock.core.host.machine import read_machine
from penstock.core.sql import fetch_one, fetch_rows, run_query
from penstock.core.values.device import Device
from penstock.core.values.server import ServerFacts
from penstock.core.values.temp_place import parse_setting
from penstock.core.words import hide_secrets
from penstock.temp.statements import begins_to_read
from penstock.temp.usage.compare import compare_readings, find_use_case
from penstock.temp.usage.values import (
    DatabaseUse,
    DeviceNow,
    IndexBuild,
    SettingRow,
    StatementUse,
    TablespaceUse,
    TempTablespaces,
    UsageReading,
    UsageReport,
)
from penstock.watch.activity import ask_tiered_cache
from penstock.watch.watching import ask_local_storage

if TYPE_CHECKING:
    from penstock.rds.values import LocalStorageMetrics

# How long planning a statement may take. Planning takes milliseconds, or seconds if there are many tables.
_TIMEOUT = "5s"
_NAME = "penstock_usage"

# Matches an EXPLAIN before a statement. pg_stat_statements keeps the EXPLAIN as a part of the statement's text.
_EXPLAIN = re.compile(r"\s*explain\s*(\([^)]*\)|analy[sz]e|verbose|\s)*", re.IGNORECASE)


def strip_explain(query: str) -> str:
    """Return the statement that an EXPLAIN explains. Any other statement is returned unchanged.

    >>> strip_explain("EXPLAIN (ANALYZE, BUFFERS) SELECT 1")
    'SELECT 1'
    """
    match = _EXPLAIN.match(query)
    return query if match is None else query[match.end() :]


def explain_kept(connection: Connection, query: str) -> dict[str, Any] | None:
    """Return the generic plan of a statement as EXPLAIN's JSON has it, None if the statement cannot be planned.

    The text of pg_stat_statements is prepared in a read-only transaction that is rolled back. PREPARE accepts only one
    statement. Planning evaluates immutable functions with the rights of the current role. Raises ServerError if the
    connection is lost.
    """
    try:
        with translate_errors("planning a statement"), rolled_back(connection):
            connection.execute("SET TRANSACTION READ ONLY")
            connection.execute(f"SET LOCAL statement_timeout = '{_TIMEOUT}'".encode())
            connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
            connection.execute(TO_USERS_SETTINGS)
            # Binary results make psycopg use the extended protocol, which accepts only one statement.
            connection.execute(f"PREPARE {_NAME} AS {query}".encode(), binary=True)
            row = fetch_one(
                connection,
                "SELECT pg_catalog.cardinality(p.parameter_types) FROM pg_catalog.pg_prepared_statements AS p"
                " WHERE p.name = %s",
                [_NAME],
            )
            values = sql.SQL(", ").join([sql.SQL("NULL")] * row[0])
            given = sql.SQL("({})").format(values) if row[0] else sql.SQL("")
            statement = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE {}{}").format(sql.Identifier(_NAME), given)
            found = connection.execute(statement).fetchone()
    except PenstockError as error:
        if error.is_transient:
            raise
        return None
    finally:
        # A prepared statement is not rolled back with its transaction.
        if not connection.closed:
            with translate_errors("planning a statement"):
                connection.execute("DEALLOCATE ALL")
    assert found is not None
    plan: dict[str, Any] = found[0][0]["Plan"]
    return plan


# The words that a replay writes before a statement. EXPLAIN returns a few kilobytes, and the rows are not sent to the
# client. Queries of pg_stat_statements exclude the statements that begin with these words (sql/parts/not_ours.sql).
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "


def find_statements_schema(connection: Connection) -> str | None:
    """Return the schema of the extension pg_stat_statements, None if this database lacks it. Raises psycopg.Error."""
    row = connection.execute(
        "SELECT n.nspname FROM pg_catalog.pg_extension AS e JOIN pg_catalog.pg_namespace AS n"
        " ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'"
    ).fetchone()
    return None if row is None else str(row[0])


_REMEDY = "add it to shared_preload_libraries, restart, and run CREATE EXTENSION pg_stat_statements"


def read_usage(connection: Connection) -> UsageReading:
    """Return the present counters of temporary files and tables of a server. Raises ServerError."""
    missing: list[str] = []
    with translate_errors("reading temporary work"):
        temp_tablespaces, block_bytes, is_monitor, denied = run_query(connection, "temp/session").fetchall()[0]
        settings = fetch_rows(connection, "temp/settings", SettingRow)
        databases = fetch_rows(connection, "temp/databases", DatabaseUse)
        tablespaces = fetch_rows(
            connection, "temp/tablespaces_now" if is_monitor else "temp/tablespaces_named", TablespaceUse
        )
        builds = fetch_rows(connection, "temp/index_builds", IndexBuild)
        statements, reset_at = _read_statements(connection, block_bytes=block_bytes, missing=missing)
    if not is_monitor:
        missing.append("files on disk and others' statements: the role lacks pg_monitor; GRANT pg_monitor to it")
    return UsageReading(
        at_s=time.monotonic(),
        temp_tablespaces=temp_tablespaces,
        denied=tuple(denied),
        statements=tuple(statements),
        databases=tuple(databases),
        tablespaces=tuple(tablespaces),
        settings=tuple(settings),
        missing=tuple(missing),
        builds=tuple(builds),
        statements_reset_at=reset_at,
    )


def _read_statements(
    connection: Connection, *, block_bytes: int, missing: list[str]
) -> tuple[list[StatementUse], datetime | None]:
    """Return all statements, including those that have not spilled, and when the statistics were reset, if known."""
    schema = find_statements_schema(connection)
    if schema is None:
        missing.append(f"statements: pg_stat_statements is not installed in this database; {_REMEDY}")
        return [], None
    try:
        rows = run_query(connection, "temp/statements", statements=schema, explain=EXPLAIN).fetchall()
    except psycopg.errors.ObjectNotInPrerequisiteState:
        missing.append(f"statements: pg_stat_statements is not loaded; {_REMEDY}")
        return [], None
    except psycopg.errors.InsufficientPrivilege as error:
        missing.append(f"statements: {error.diag.message_primary}, where pg_stat_statements is; GRANT USAGE on it")
        return [], None
    reset_at = None
    if rows and "toplevel" in rows[0][0]:
        # Column toplevel and view pg_stat_statements_info exist since version 1.9 of the extension.
        reset = sql.SQL("SELECT i.stats_reset FROM {} AS i").format(sql.Identifier(schema, "pg_stat_statements_info"))
        row = connection.execute(reset).fetchone()
        reset_at = None if row is None else row[0]
    return [_to_use(found, database, role, block_bytes) for found, database, role in rows], reset_at


def _to_use(row: dict[str, Any], database: str | None, role: str | None, block_bytes: int) -> StatementUse:
    return StatementUse(
        database=database,
        role=role,
        queryid=row["queryid"],
        query=row["query"] or "",
        calls=row["calls"],
        total_exec_time_ms=row["total_exec_time"],
        rows=row["rows"],
        is_top=row.get("toplevel"),
        temp_read_bytes=row["temp_blks_read"] * block_bytes,
        temp_written_bytes=row["temp_blks_written"] * block_bytes,
        local_read_bytes=row["local_blks_read"] * block_bytes,
        local_written_bytes=row["local_blks_written"] * block_bytes,
        temp_read_time_ms=row.get("temp_blk_read_time"),
        temp_write_time_ms=row.get("temp_blk_write_time"),
    )


# The tablespace of the data directory. Temporary work uses it if no setting names another one.
DATA = "pg_default"


def find_routes(
    settings: Sequence[SettingRow], tablespaces: Sequence[TablespaceUse], *, session: str, denied: Sequence[str] = ()
) -> list[TempTablespaces]:
    """Return the tablespaces to which temporary files go: of this session, and of each role or database with a setting.

    Each also has the names that PostgreSQL ignores silently. `session` is temp_tablespaces of this session, and
    `denied` are the tablespaces on which its role lacks CREATE.
    """
    known = {each.name for each in tablespaces}
    routes = [_route("this session", session, known, denied)]
    for row in settings:
        owner = "" if row.role is None else f'role "{row.role}"'
        where = "" if row.database is None else f'database "{row.database}"'
        routes.append(_route(" in ".join(filter(None, (owner, where))) or "every role", row.value, known, row.denied))
    return routes


def _route(whose: str, value: str, known: set[str], denied: Sequence[str]) -> TempTablespaces:
    names = parse_setting(value)
    ignored = [f'"{name}" does not exist' for name in names if name and name not in known]
    ignored += [f'no CREATE on "{name}"' for name in names if name in denied]
    used = [name or DATA for name in names if (not name or name in known) and name not in denied]
    return TempTablespaces(whose=whose, tablespaces=tuple(used) or (DATA,), ignored=tuple(ignored))


def look_at_devices(tablespaces: Sequence[TablespaceUse]) -> list[DeviceNow]:
    """Return the device of each tablespace, with its present counters. The server must run on this machine.

    Tablespaces whose device is not known are missing.
    """
    found = list(_find(tablespaces))
    data = next((device for name, _, device in found if name == DATA), None)
    now = []
    for name, path, device in found:
        disk, counters = measure_disk(path), read_counters(device)
        is_shared = (
            data is not None and name != DATA and (device.name == data.name or bool({*device.disks} & {*data.disks}))
        )
        now.append(
            DeviceNow(
                tablespace=name,
                device=device.name,
                kind="shared with the data" if is_shared else device.kind,
                counters=counters,
                free_bytes=None if disk is None else disk.free_bytes,
            )
        )
    return now


def _find(tablespaces: Sequence[TablespaceUse]) -> Iterator[tuple[str, Path, Device]]:
    for each in tablespaces:
        device = None if each.directory is None else find_device(Path(each.directory))
        if each.directory is not None and device is not None:
            yield each.name, Path(each.directory), device


def temp_usage(
    to: ConnectionFactory,
    *,
    interval_s: float = 60.0,
    top: int = 10,
    host: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> UsageReport:
    """Return what temporary files and tables a server writes within an interval, and which statements write them.

    The report has the `top` statements. If the interval is 0, they count from the reset of their statistics. Changes
    nothing. Statements need pg_stat_statements. Statements of other roles, and files on disk, need pg_monitor. Devices
    are read if the server is on this machine. If `host` is given, an endpoint of RDS, CloudWatch is asked for the
    metrics of local storage. `say` is called before the wait. Raises ServerError.
    """
    with closing(to.connect(label="usage")) as connection:
        facts = read_server_facts(connection)
        receive_any_text(connection)
        before = _read(connection, is_local=facts.is_local)
        after = before
        if interval_s:
            say(f"watching for {interval_s:g} s")
            time.sleep(interval_s)
            after = _read(connection, is_local=facts.is_local)
        report = compare_readings(before, after, top=top)
        memory = read_machine().memory_bytes if facts.is_local else None
        # The server can plan the texts only as they are.
        explained = [_explain(connection, each, facts, memory) for each in report.statements]
        missing: list[str] = []
        cache = ask_tiered_cache(connection) if facts.is_aurora else None
    return replace(
        report,
        statements=tuple(replace(each, query=hide_secrets(each.query)) for each in explained),
        local_storage=None if host is None else _ask_local_storage(host, missing=missing),
        tiered_cache=cache,
        missing=(*report.missing, *missing),
    )


def _ask_local_storage(host: str, *, missing: list[str]) -> LocalStorageMetrics | None:
    try:
        return ask_local_storage(host)
    except AwsError as error:
        missing.append(f"CloudWatch's metrics of local storage: {error.message}")
        return None


def _read(connection: Connection, *, is_local: bool) -> UsageReading:
    reading = read_usage(connection)
    return replace(
        reading,
        routes=tuple(
            find_routes(reading.settings, reading.tablespaces, session=reading.temp_tablespaces, denied=reading.denied)
        ),
        devices=tuple(look_at_devices(reading.tablespaces)) if is_local else (),
    )


def _explain(connection: Connection, use: StatementUse, facts: ServerFacts, memory_bytes: int | None) -> StatementUse:
    """Return a statement with the reason why it spills, according to its plan, or why it was not planned.

    Only this role's own statements are planned, because planning runs immutable functions with this role's rights.
    """
    query = strip_explain(use.query)
    if use.role != facts.user:
        return replace(use, unplanned="it is another role's")
    if use.database != facts.database:
        return replace(use, unplanned="it is another database's")
    if not begins_to_read(query):
        return replace(use, unplanned="it is not one that only reads")
    plan = explain_kept(connection, query)
    if plan is None:
        return replace(use, unplanned="the server cannot plan its text")
    return replace(use, use_case=find_use_case(use, plan, memory_bytes=memory_bytes))
