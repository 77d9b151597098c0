"""Sets up, observes and cancels sessions that build indexes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import psycopg

from penstock.frozen import frozen
from penstock.model.load.part import StepProgress
from penstock.server.connect.connection import Connection
from penstock.server.connect.errors import translate_errors
from penstock.server.sql.queries import fetch_rows

_CANCEL_TIMEOUT_S = 10.0

# One word for each phase that the server reports. The phases are from src/backend/catalog/system_views.sql and
# btbuildphasename.
_WORDS = {
    "building index: scanning table": "scanning",
    "building index: performing merge of partitions": "sorting",
    "building index: sorting live tuples": "sorting",
    "building index: sorting dead tuples": "sorting",
    "building index: loading tuples in tree": "writing",
    "building index": "building",
}


@frozen
class BuildRow:
    """The row of changes_progress.sql."""

    pid: int
    phase: str
    done: int
    # 0 if the phase reports no progress.
    total: int


def read_build_progress(connection: Connection, names: Mapping[int, str]) -> tuple[StepProgress, ...]:
    """Return the progress of index builds. `names` are the indexes by the pid of their backend. Raises ServerError."""
    if not names:
        return ()
    with translate_errors("reading the progress of index builds"):
        rows = fetch_rows(connection, "changes_progress", BuildRow)
    found = {row.pid: row for row in rows}
    return tuple(_describe(name, found.get(pid)) for pid, name in names.items())


def _describe(name: str, row: BuildRow | None) -> StepProgress:
    if row is None:
        return StepProgress(name=name, phase="", fraction=None)
    fraction = min(1.0, row.done / row.total) if row.total > 0 else None
    return StepProgress(name=name, phase=_WORDS.get(row.phase, ""), fraction=fraction)


def set_build_memory(connection: Connection, *, memory_bytes: int, may_lower: bool, workers: int) -> None:
    """Set the session's maintenance_work_mem and parallel workers for the next index build.

    A larger maintenance_work_mem is kept unless `may_lower` is true. Raises ServerError.
    """
    query = """
        SELECT pg_catalog.set_config(
                   'maintenance_work_mem',
                   greatest(%(memory_kb)s::bigint, CASE WHEN NOT %(may_lower)s THEN s.reset_val::bigint END) || 'kB',
                   false
               ),
               pg_catalog.set_config('max_parallel_maintenance_workers', %(workers)s::text, false)
          FROM pg_catalog.pg_settings AS s
         WHERE s.name = 'maintenance_work_mem'
    """
    with translate_errors("preparing a session that builds indexes"):
        connection.execute(query, {"memory_kb": memory_bytes // 1024, "may_lower": may_lower, "workers": workers})


def cancel(connection: Connection) -> None:
    """Ask the server to cancel the statement that the session runs."""
    with contextlib.suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
