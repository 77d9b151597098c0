"""Sessions that replay statements with EXPLAIN: read-only, one statement at a time, by the extended protocol."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from penstock.errors import TargetError
from penstock.frozen import frozen
from penstock.model.redaction import hide_secrets
from penstock.model.temp.replay import Skipped
from penstock.server.connect.connection import Connection, ConnectionFactory
from penstock.server.connect.errors import rolled_back, translate_errors
from penstock.server.sql.queries import fetch_rows
from penstock.server.temp.extension import EXPLAIN, compose, find_statements_schema

# The columns exist since version 1.8 of the extension (PostgreSQL 13). Both queries exclude a replay's own statements.
_TOP = """
    SELECT s.query
      FROM {schema}.pg_stat_statements AS s
     WHERE s.temp_blks_written > 0
       AND {not_ours}
       AND s.dbid = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
     ORDER BY s.temp_blks_written DESC
"""

_TOTALS = """
    SELECT s.query, sum(s.calls)::bigint, sum(s.total_exec_time)::float8
      FROM {schema}.pg_stat_statements AS s
     WHERE s.queryid IS NOT NULL AND s.calls > 0
       AND {not_ours}
       AND s.dbid = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
     GROUP BY s.query
"""


@frozen
class DirectoryRow:
    """The row of temp_directories.sql."""

    name: str
    # None if the role may not see it.
    directory: str | None


@frozen
class Explained:
    """A statement that was run."""

    # The seconds that its session measured.
    elapsed_s: float
    # The plan as in EXPLAIN's JSON.
    plan: dict[str, Any]


@frozen
class ReplayFacts:
    """The facts about a server that a replay needs: block size, memory, and the role's temp_tablespaces."""

    # Whether the session's user is a superuser, or a member of a superuser role.
    is_superuser: bool
    block_bytes: int
    work_mem_bytes: int
    shared_buffers_bytes: int
    temp_tablespaces: str
    directories: dict[str, str]


class ReplaySession:
    """A session that replays. Its search_path and other settings are the user's own. Methods raise PenstockError."""

    def __init__(self, factory: ConnectionFactory, *, timeout_s: float) -> None:
        self._connection = factory.connect(label="replay")
        # A value of 0 would mean no timeout.
        self._timeout = f"{max(1, round(timeout_s * 1000))}ms"
        with translate_errors("preparing a session"):
            self._connection.execute("SET search_path TO DEFAULT")

    def set_up(self, statements: Sequence[str]) -> None:
        """Run statements that the replayed ones depend on, such as SET and CREATE TEMPORARY TABLE."""
        with translate_errors("running the set-up"):
            for statement in statements:
                # The extended protocol refuses text with two statements.
                self._connection.execute(statement.encode(), binary=True)

    def explain(self, statement: str, *, tablespace: str, work_mem_bytes: int | None = None) -> Explained:
        """Run a statement with its temporary work in a tablespace. Its rows are not sent to the client."""
        with translate_errors("running a statement"), rolled_back(self._connection):
            self._connection.execute("SET TRANSACTION READ ONLY")
            self._set("temp_tablespaces", tablespace)
            self._set("statement_timeout", self._timeout)
            if work_mem_bytes is not None:
                self._set("work_mem", f"{work_mem_bytes // 1024}kB")
            began_s = time.perf_counter()
            # Binary results make psycopg use the extended protocol, which accepts only one statement.
            row = self._connection.execute(f"{EXPLAIN}{statement}".encode(), binary=True).fetchone()
            elapsed_s = time.perf_counter() - began_s
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return Explained(elapsed_s=elapsed_s, plan=plan)

    def cancel(self) -> None:
        """Cancel the running statement. Any thread may call this."""
        self._connection.cancel_safe(timeout=5)

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def _set(self, name: str, value: str) -> None:
        self._connection.execute("SELECT pg_catalog.set_config(%s, %s, true)", [name, value])


def check_place(connection: Connection, tablespaces: str) -> None:
    """Raise TargetError if temp_tablespaces cannot be set to a value: a tablespace is missing or not granted."""
    with translate_errors("checking where temporary work is to go"):
        connection.execute("SELECT pg_catalog.set_config('temp_tablespaces', %s, false)", [tablespaces])


def read_replay_facts(connection: Connection) -> ReplayFacts:
    """Return the facts about a server that a replay needs. Raises ServerError."""
    with translate_errors("reading what a replay must know"):
        row = connection.execute(
            # Check the session's user, because a function in a statement may call RESET ROLE or SET ROLE.
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles AS r"
            " WHERE r.rolsuper AND pg_catalog.pg_has_role(SESSION_USER, r.oid, 'MEMBER')),"
            " pg_catalog.current_setting('block_size')::int,"
            " pg_catalog.pg_size_bytes(pg_catalog.current_setting('work_mem')),"
            " pg_catalog.pg_size_bytes(pg_catalog.current_setting('shared_buffers')),"
            " pg_catalog.current_setting('temp_tablespaces')"
        ).fetchone()
        directories = fetch_rows(connection, "temp_directories", DirectoryRow)
    assert row is not None
    return ReplayFacts(
        is_superuser=row[0],
        block_bytes=row[1],
        work_mem_bytes=row[2],
        shared_buffers_bytes=row[3],
        temp_tablespaces=row[4],
        directories={each.name: each.directory for each in directories if each.directory is not None},
    )


def find_top_statements(connection: Connection, count: int) -> tuple[list[str], list[Skipped]]:
    """Return the statements of this database that spilled most, and those with a text that the role may not see.

    Needs pg_stat_statements, and pg_read_all_stats for statements of other roles. Raises TargetError without the
    extension, ServerError.
    """
    with translate_errors("reading pg_stat_statements"):
        schema = find_statements_schema(connection)
        if schema is None:
            raise TargetError(
                "the extension pg_stat_statements is not installed in this database",
                hint="Name statements with --sql FILE; or add it to shared_preload_libraries, restart, and run CREATE "
                "EXTENSION pg_stat_statements.",
            )
        found = connection.execute(compose(_TOP, schema=schema)).fetchall()
    kept: list[str] = []
    skipped: list[Skipped] = []
    for (text,) in found:
        if len(kept) == count:
            break
        if text is None or text == "<insufficient privilege>":
            skipped.append(Skipped(statement="(hidden)", why="the role may not see it: it lacks pg_read_all_stats"))
        else:
            kept.append(hide_secrets(text))
    return kept, skipped


def read_totals(connection: Connection) -> dict[str, tuple[int, float]] | None:
    """Return calls and total_exec_time in milliseconds of this database's statements, by their text.

    Returns None without pg_stat_statements. Raises ServerError.
    """
    with translate_errors("reading pg_stat_statements"):
        schema = find_statements_schema(connection)
        if schema is None:
            return None
        rows = connection.execute(compose(_TOTALS, schema=schema)).fetchall()
    return {hide_secrets(text): (calls, total_ms) for text, calls, total_ms in rows}
