"""Sessions that report when they begin and end to wait for the server, so that a watch can look at what blocks them.

The watch is in core/catalogue/lock_watch.py. It names the sessions that hold the locks, and ends a wait that has lasted
too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psycopg
from psycopg.rows import Row

from penstock.core.connect.errors import LockWaitOver

if TYPE_CHECKING:
    from psycopg.abc import PQGen


_Result = TypeVar("_Result")


class SessionWatch(Protocol):
    """An object that looks at sessions while they wait for the server. LockWatch implements it.

    The thread that uses a session calls the methods.
    """

    def add(self, session: WatchedConnection[Any]) -> None:
        """Register a session that was opened, so that the watch can tell its own sessions from those of others."""

    def begin(self, session: WatchedConnection[Any], on_conflict: Callable[[], None] | None) -> None:
        """Watch a session until `end` is called for it.

        `on_conflict` is called, by another thread, if another session of the watch blocks this one with a lock that it
        may keep until its transaction ends.
        """

    def end(self, session: WatchedConnection[Any]) -> None:
        """End one call of `begin`. Calls of `begin` and `end` may be nested."""


class WatchedConnection(psycopg.Connection[Row]):
    """A connection whose waits for the server's answers are watched."""

    watch: SessionWatch | None = None
    # The error that explains why the watch has cancelled the session's statement.
    wait_over: LockWaitOver | None = None

    def wait(self, gen: PQGen[_Result], *arguments: Any, **options: Any) -> _Result:
        """Wait for the server as psycopg does. Raises LockWaitOver if the watch has ended the wait."""
        with waiting(self):
            return super().wait(gen, *arguments, **options)


@contextmanager
def waiting(session: psycopg.Connection[Any], on_conflict: Callable[[], None] | None = None) -> Iterator[None]:
    """Let the session's watch, if it has one, look at the session while the block waits for the server.

    If the watch cancels a statement that waits too long for a lock, LockWaitOver is raised instead of QueryCanceled.
    `on_conflict` is called, by another thread, if another session of the same watch blocks this one with a lock that it
    may keep until its transaction ends.
    """
    if not isinstance(session, WatchedConnection) or (watch := session.watch) is None:
        yield
        return
    watch.begin(session, on_conflict)
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        over, session.wait_over = session.wait_over, None
        if over is None:
            raise
        raise over from error
    finally:
        watch.end(session)
