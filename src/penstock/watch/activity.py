"""Reads what a server is doing, in one round trip: its sessions, its statistics views, and its WAL position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from psycopg import sql

from penstock.core.connect.connection import CAN_FLUSH_STATISTICS, Connection
from penstock.core.connect.errors import translate_errors
from penstock.core.connect.texts import receive_any_text
from penstock.core.errors import PenstockError
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, read_query, run_query, send_query
from penstock.core.values.device import TIERED_CACHE, TieredCache, read_tiered_cache
from penstock.core.values.server import Clock, Unread
from penstock.watch.values import Progress, SessionSample

if TYPE_CHECKING:
    import psycopg

    from penstock.core.values.device import CounterRow

    Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]
    Query: TypeAlias = sql.SQL | sql.Composed

_log = logging.getLogger(__name__)

# The statistics views that are read if the server has them. For large views, a condition leaves out rows of zeros. All
# columns are read without naming them, because they differ between versions. So a new version needs no new query.
_VIEWS: Final = {
    "pg_stat_database": "v.datname IS NOT NULL",
    "pg_stat_bgwriter": "true",
    "pg_stat_checkpointer": "true",
    "pg_stat_wal": "true",
    "pg_stat_io": "coalesce(v.reads, 0) + coalesce(v.writes, 0) + coalesce(v.extends, 0) + coalesce(v.fsyncs, 0) > 0",
    "pg_stat_replication": "true",
    "pg_stat_wal_receiver": "true",
    "pg_stat_slru": "true",
    "pg_stat_replication_slots": "true",
}

# The progress views of commands. They are read with the name of the table.
_PROGRESS: Final = ("pg_stat_progress_copy", "pg_stat_progress_create_index")

STATEMENTS: Final = "pg_stat_statements"

INDEX_READS: Final = "pg_statio_user_indexes"

CONNECTIONS: Final = "connections"

PREPARED: Final = "prepared"

# The files of queries whose rows change slowly or are many, by the name of the rows in a sample.
_SLOW_FILES: Final = {
    "xmin_holders": "watch/xmin_holders",
    "pg_stat_user_tables": "watch/tables",
    "database_ages": "watch/database_ages",
    "slots": "core/inspect_slots",
    "archiver": "core/inspect_archiver",
    "invalid_indexes": "watch/invalid_indexes",
    "sequences": "watch/sequences",
    "unindexed_keys": "watch/unindexed_keys",
    "write_costs": "watch/write_costs",
}

# The files that return several columns, because other features use them too.
_OF_COLUMNS: Final = ("slots", "archiver")

# The rows that are read once a minute, and at the end. The reading may fail: another session can lock or drop a
# sequence.
SLOW: Final = (*_SLOW_FILES, "pg_stat_slru", "pg_stat_replication_slots")

# Of these, what other sessions lock for as long as their transactions last. The rest is read without it then.
_LOCKED: Final = ("sequences",)

# The views that a query file of penstock reads.
_FILES: Final = {
    "temp_files": "watch/temp_files",
    INDEX_READS: "watch/index_reads",
    CONNECTIONS: "watch/connections",
    PREPARED: "watch/prepared",
    "pg_stat_progress_vacuum": "watch/vacuums",
    **_SLOW_FILES,
}

# A query that returns the rows of another one, each as an object of JSON.
_AS_JSON: Final = sql.SQL("SELECT pg_catalog.to_jsonb(q) FROM (\n{}\n) AS q")

# The number of commits of every database, and their time in microseconds. Source: Aurora User Guide,
# aurora_stat_get_db_commit_latency.
_AURORA_COMMITS: Final = (
    "SELECT pg_catalog.jsonb_build_object('datname', d.datname, 'commit_latency_us',"
    " pg_catalog.aurora_stat_get_db_commit_latency(d.oid)) FROM pg_catalog.pg_database AS d WHERE d.datallowconn"
)

# Source: Aurora User Guide, aurora_stat_optimized_reads_cache. The function exists from 14.9 and 15.4 on. It raises an
# error if the instance has no such cache.
_TIERED_CACHE: Final = "SELECT pg_catalog.to_jsonb(v) FROM pg_catalog.aurora_stat_optimized_reads_cache() AS v"

# The settings that say what a commit waits for, when checkpoints start, what statistics of statements contain, and how
# many sessions are allowed.
_SETTINGS: Final = (
    "synchronous_commit",
    "synchronous_standby_names",
    "wal_sync_method",
    "fsync",
    "full_page_writes",
    "commit_delay",
    "max_wal_size",
    "max_slot_wal_keep_size",
    "checkpoint_timeout",
    "checkpoint_completion_target",
    "shared_buffers",
    "temp_file_limit",
    "wal_buffers",
    "wal_compression",
    "max_parallel_maintenance_workers",
    "autovacuum",
    "autovacuum_freeze_max_age",
    "autovacuum_multixact_freeze_max_age",
    "compute_query_id",
    "track_activity_query_size",
    "max_connections",
    "superuser_reserved_connections",
    "reserved_connections",
    # Only RDS and Aurora have this setting.
    "rds.extensions",
)


@slotted
class RightsRow:
    """The row that rights.sql returns."""

    reads_statistics: bool
    # The schema of pg_stat_statements. None if the extension is not installed.
    statements_schema: str | None


@slotted
class Observation:
    """One reading: the sessions, the WAL position, and the rows of the requested views, by name."""

    sessions: Sequence[SessionSample]
    progress: Progress
    counters: Mapping[str, tuple[CounterRow, ...]]


class ActivityReader:
    """Reads one server's activity over its own session. `open_reader` creates it. Each reading is one transaction."""

    def __init__(self, connection: Connection, queries: Mapping[str, Query]) -> None:
        self._connection = connection
        # For each view, a query that returns its rows.
        self._queries = queries
        # The queries that have been composed, by the views that they read. There are few: views are due together.
        self._composed: dict[tuple[str, ...], bytes] = {}

    def read(self, *, views: Sequence[str]) -> Observation:
        """Return the current activity, with the rows of `views`, which must be in `views_there`. Raises ServerError."""
        wanted = list(views)
        for left_out in (_LOCKED, SLOW):
            try:
                return self._read(wanted)
            except PenstockError as error:
                if self._connection.closed or not set(SLOW).intersection(wanted):
                    raise
                _log.info("not read: %s: %s", ", ".join(left_out), error)
                wanted = [name for name in wanted if name not in left_out]
        return self._read(wanted)

    def _read(self, views: Sequence[str]) -> Observation:
        with translate_errors("reading server activity"):
            with self._connection.pipeline():
                fetch_sessions = send_query(self._connection, "watch/sessions", SessionSample)
                fetch_progress = send_query(self._connection, "watch/progress", Progress)
                cursor = self._connection.execute(self._compose(tuple(views))) if views else None
            (progress,) = fetch_progress()
            return Observation(
                sessions=name_autovacuum(fetch_sessions()),
                progress=progress,
                counters=_sort_rows(views, cursor or ()),
            )

    def _compose(self, views: tuple[str, ...]) -> bytes:
        if views not in self._composed:
            query = _join_queries(self._queries[name] for name in views)
            self._composed[views] = query.as_bytes(self._connection)
        return self._composed[views]

    @property
    def backend_pid(self) -> int:
        """Return the pid of the session's backend."""
        return self._connection.info.backend_pid

    @property
    def views_there(self) -> tuple[str, ...]:
        """Return the names of the views that can be read."""
        return tuple(self._queries)

    def read_settings(self) -> dict[str, str]:
        """Return what the function of this name returns, in a transaction of its own. Raises ServerError."""
        return read_settings(self._connection)

    def read_directories(self) -> dict[str, str]:
        """Return the directories of tablespaces and pg_wal by name. pg_default has the data directory.

        Needs pg_read_all_settings for the data directory. Raises ServerError.
        """
        with translate_errors("reading tablespaces"):
            rows = run_query(self._connection, "watch/directories").fetchall()
        found = {name: directory for name, directory in rows if directory is not None}
        return found | ({"pg_wal": f"{found['pg_default']}/pg_wal"} if "pg_default" in found else {})

    def close(self) -> None:
        """Close the session."""
        self._connection.close()


def read_settings(connection: Connection) -> dict[str, str]:
    """Return the settings that rules of diagnoses need, as the server shows them. Raises ServerError."""
    with translate_errors("reading settings"):
        rows = connection.execute(
            "SELECT s.name, pg_catalog.current_setting(s.name)"
            " FROM pg_catalog.pg_settings AS s WHERE s.name = ANY (%s::text[])",
            [list(_SETTINGS)],
        ).fetchall()
    return dict(rows)


def read_slow(connection: Connection) -> dict[str, tuple[CounterRow, ...]]:
    """Return the rows that change slowly, and the connections.

    If a query fails, return no rows. Raises ServerError if the connection is lost.
    """
    for left_out in ((), _LOCKED):
        names = [name for name in (CONNECTIONS, PREPARED, *_SLOW_FILES) if name not in left_out]
        try:
            with translate_errors("reading what may stop the server"):
                return _sort_rows(names, connection.execute(_join_queries(_read_files(connection, names).values())))
        except PenstockError:
            if connection.closed:
                raise
    return {}


def _read_files(connection: Connection, names: Sequence[str]) -> dict[str, Query]:
    """Return queries of _FILES, each with one column of JSON. Other features use some of the files, as columns."""
    return {
        name: _AS_JSON.format(read_query(connection, _FILES[name]))
        if name in _OF_COLUMNS
        else read_query(connection, _FILES[name])
        for name in names
    }


def _join_queries(queries: Iterable[Query]) -> sql.Composed:
    """Return one query for the rows of several, each with the number of its query.

    One query takes the client half the processor time that a query for each view takes.
    """
    return sql.SQL("\nUNION ALL\n").join(
        sql.SQL("SELECT {}, v.counters FROM (\n{}\n) AS v (counters)").format(sql.Literal(number), query)
        for number, query in enumerate(queries)
    )


def _sort_rows(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> dict[str, tuple[CounterRow, ...]]:
    """Return the rows of a query that `_join_queries` has composed, by the names of its queries."""
    found: list[list[CounterRow]] = [[] for _ in names]
    for number, row in rows:
        found[number].append(row)
    return dict(zip(names, map(tuple, found), strict=True))


def name_autovacuum(sessions: Sequence[SessionSample]) -> Sequence[SessionSample]:
    """Return the sessions. A parallel worker of autovacuum gets the type and the statement of its leader.

    Only PostgreSQL 19 and later have such workers. The server shows no statement for them.
    """
    leaders = {session.pid: session for session in sessions if session.backend_type == "autovacuum worker"}
    return [
        session
        if (leader := leaders.get(session.leader_pid or 0)) is None
        else replace(session, backend_type=leader.backend_type, query=leader.query)
        for session in sessions
    ]


def open_reader(connection: Connection, *, is_aurora: bool) -> tuple[ActivityReader, tuple[Unread, ...]]:
    """Return a reader that owns the connection, and a list of what it cannot read.

    Needs pg_read_all_stats (pg_monitor includes it) for the activity of other sessions. Raises ServerError.
    """
    with translate_errors("checking what can be read"):
        receive_any_text(connection)
        (rights,) = fetch_rows(connection, "watch/rights", RightsRow)
    there = _find_views(connection)
    unread = []
    if not rights.reads_statistics:
        unread.append(Unread(what="activity of other roles", why="the role is not a member of pg_read_all_stats"))
    queries: dict[str, Query] = {
        name: sql.SQL("SELECT pg_catalog.to_jsonb(v) FROM pg_catalog.{} AS v WHERE {}").format(
            sql.Identifier(name), sql.SQL(condition)
        )
        for name, condition in _VIEWS.items()
        if name in there
    }
    queries |= {
        name: sql.SQL(
            "SELECT pg_catalog.to_jsonb(v) || pg_catalog.jsonb_build_object('relname',"
            " (SELECT c.relname FROM pg_catalog.pg_class AS c WHERE c.oid = v.relid"
            " AND v.datname = pg_catalog.current_database())) FROM pg_catalog.{} AS v"
        ).format(sql.Identifier(name))
        for name in _PROGRESS
    }
    if is_aurora:
        queries["aurora_commits"] = sql.SQL(_AURORA_COMMITS)
        queries[TIERED_CACHE] = sql.SQL(_TIERED_CACHE)
    if rights.statements_schema is None:
        unread.append(Unread(what=STATEMENTS, why="the extension is not installed in this database"))
    else:
        view = sql.Identifier(rights.statements_schema, STATEMENTS)
        queries[STATEMENTS] = sql.SQL("SELECT pg_catalog.to_jsonb(v) FROM {} AS v WHERE v.calls > 0").format(view)
    queries |= _read_files(connection, tuple(_FILES))
    readable = {}
    for name, query in queries.items():
        # Queries that are rarely run are not tried here: trying them would take as long as opening the session.
        reason = None if name in SLOW else _try(partial(connection.execute, query))
        if reason is None:
            readable[name] = query
        else:
            unread.append(Unread(what=name, why=reason))
    with translate_errors("checking what can be read"):
        # In a database of many tables, the queries together would be compiled, which takes longer than running them.
        connection.execute("SET jit = off")
    # The queries are the same at each tick, and planning them takes the server four times as long as running them.
    # Poolers, which may give a session another backend, are refused.
    connection.prepare_threshold = 0
    flush_statistics(connection)
    return ActivityReader(connection, readable), tuple(unread)


def ask_tiered_cache(connection: Connection) -> TieredCache | None:
    """Return the tiered cache of an instance of Aurora, None if it has none. Raises ServerError."""
    found: list[Cursor] = []
    if _try(lambda: found.append(connection.execute(_TIERED_CACHE))) is not None:
        return None
    row = found[0].fetchone()
    return read_tiered_cache(None if row is None else row[0])


def flush_statistics(connection: Connection) -> None:
    """Report the session's statistics now, so that later readings do not take its earlier work for new work.

    Does nothing on PostgreSQL 14, which has no function for it.
    """
    if connection.info.server_version >= CAN_FLUSH_STATISTICS:
        with translate_errors("checking what can be read"):
            connection.execute("SELECT pg_catalog.pg_stat_force_next_flush()")


def _find_views(connection: Connection) -> set[str]:
    """Return the views of _VIEWS that the server has."""
    query = (
        "SELECT v FROM pg_catalog.unnest(%s::text[]) AS v WHERE pg_catalog.to_regclass('pg_catalog.' || v) IS NOT NULL"
    )
    with translate_errors("checking what can be read"):
        return {name for (name,) in connection.execute(query, [list(_VIEWS)]).fetchall()}


def _try(send: Callable[[], object]) -> str | None:
    """Return the error message of a query, or None if it succeeds. Raises errors that may be temporary."""
    try:
        with translate_errors("checking what can be read"):
            send()
    except PenstockError as error:
        if error.is_transient:
            raise
        return error.message
    return None


@slotted
class MomentRow:
    """The row that moment.sql returns."""

    clock_s: float
    autovacuum_workers: int | None


def read_moment(connection: Connection, clock: Callable[[], float]) -> tuple[MomentRow, Clock]:
    """Return the row of moment.sql, and the difference between the server's clock and this host's."""
    before_s = clock()
    with translate_errors("reading the server's clock"):
        (moment,) = fetch_rows(connection, "watch/moment", MomentRow)
    after_s = clock()
    half_s = (after_s - before_s) / 2
    return moment, Clock(ahead_s=moment.clock_s - before_s - half_s, error_s=half_s)
