"""Settings of a session that makes indexes, and how it is stopped."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg

from penstock.server.connect.errors import translate_errors

if TYPE_CHECKING:
    from penstock.server.connect.connection import Connection

_CANCEL_TIMEOUT_S = 10.0


def set_build_memory(connection: Connection, *, memory_bytes: int, workers: int) -> None:
    """Give the session's index builds memory, never less than it has, and parallel workers. Raises ServerError."""
    query = """
        SELECT pg_catalog.set_config('maintenance_work_mem', greatest(s.setting::bigint, %s) || 'kB', false),
               pg_catalog.set_config('max_parallel_maintenance_workers', %s::text, false)
          FROM pg_catalog.pg_settings AS s
         WHERE s.name = 'maintenance_work_mem'
    """
    with translate_errors("preparing a session that builds indexes"):
        connection.execute(query, [memory_bytes // 1024, workers])


def cancel(connection: Connection) -> None:
    """Ask the server to end the statement that the session runs."""
    with contextlib.suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
