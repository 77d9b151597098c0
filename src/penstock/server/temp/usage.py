"""Reads a server's present statistics of temporary work. Changes nothing."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import psycopg

from penstock.model.redaction import hide_secrets
from penstock.model.temp.usage import DatabaseUse, IndexBuild, SettingRow, StatementUse, TablespaceUse, UsageReading
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_one, fetch_rows
from penstock.server.temp.extension import compose, find_statements_schema

# Rows are read as jsonb, because the columns depend on the extension's version.
_STATEMENTS = """
    SELECT pg_catalog.to_jsonb(s), d.datname::text, r.rolname::text
      FROM {schema}.pg_stat_statements AS s
      LEFT JOIN pg_catalog.pg_database AS d ON d.oid = s.dbid
      LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = s.userid
     WHERE s.queryid IS NOT NULL
       AND {not_ours}
"""
_RESET = "SELECT i.stats_reset FROM {schema}.pg_stat_statements_info AS i"
_REMEDY = "add it to shared_preload_libraries, restart, and run CREATE EXTENSION pg_stat_statements"


def read_usage(connection: Connection) -> UsageReading:
    """Return a server's present statistics of temporary work. Raises ServerError."""
    missing: list[str] = []
    with translate_errors("reading temporary work"):
        row = fetch_one(
            connection,
            "SELECT pg_catalog.current_setting('temp_tablespaces'), pg_catalog.current_setting('block_size')::int,"
            " pg_catalog.pg_has_role(CURRENT_USER, 'pg_monitor', 'USAGE')",
        )
        settings = fetch_rows(connection, "temp_settings", SettingRow)
        databases = fetch_rows(connection, "temp_databases", DatabaseUse)
        tablespaces = fetch_rows(
            connection, "temp_tablespaces_now" if row[2] else "temp_tablespaces_named", TablespaceUse
        )
        builds = fetch_rows(connection, "temp_index_builds", IndexBuild)
        statements, reset_at = _read_statements(connection, block_bytes=row[1], missing=missing)
    if not row[2]:
        missing.append("files on disk and others' statements: the role lacks pg_monitor; GRANT pg_monitor to it")
    return UsageReading(
        at_s=time.monotonic(),
        temp_tablespaces=row[0],
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
        rows = connection.execute(compose(_STATEMENTS, schema=schema)).fetchall()
    except psycopg.errors.ObjectNotInPrerequisiteState:
        missing.append(f"statements: pg_stat_statements is not loaded; {_REMEDY}")
        return [], None
    except psycopg.errors.InsufficientPrivilege as error:
        missing.append(f"statements: {error.diag.message_primary}, where pg_stat_statements is; GRANT USAGE on it")
        return [], None
    reset_at = None
    if rows and "toplevel" in rows[0][0]:
        # Column toplevel and view pg_stat_statements_info exist since version 1.9 of the extension.
        row = connection.execute(compose(_RESET, schema=schema)).fetchone()
        reset_at = None if row is None else row[0]
    return [_to_use(found, database, role, block_bytes) for found, database, role in rows], reset_at


def _to_use(row: dict[str, Any], database: str | None, role: str | None, block_bytes: int) -> StatementUse:
    return StatementUse(
        database=database,
        role=role,
        queryid=row["queryid"],
        query=hide_secrets(row["query"] or ""),
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
