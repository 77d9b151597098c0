"""A server that does not answer: the backend of a session, stopped while it is idle."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def stopped_backend(conninfo: str, application: str) -> Iterator[None]:
    """Stop the backend of the session whose application's name ends so, and have it go on afterwards."""
    query = "SELECT pid, wait_event FROM pg_stat_activity WHERE application_name LIKE '%%' || %s"
    idle: list[int] = []
    with psycopg.connect(conninfo, autocommit=True) as admin:
        # Stopped at anything else, it might have a lock that all others need.
        while not idle:
            idle.extend(pid for pid, event in admin.execute(query, [application]) if event == "ClientRead")
    os.kill(idle[0], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(idle[0], signal.SIGCONT)
