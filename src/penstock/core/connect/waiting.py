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

if TYPE_CHECKING:
    from psycopg.abc import PQGen

    from penstock.core.connect.errors import LockWaitOver

_Result = TypeVar("_Result")


class SessionWatch(Protocol):
    """What looks at sessions that wait. The thread that uses a session calls the methods."""

    def add(self, session: WatchedConnection[Any]) -> None:
        """Add a session that was opened. The watch tells its own sessions from those of others."""

    def begin(self, session: WatchedConnection[Any], on_conflict: Callable[[], None] | None) -> None:
        """Begin to look at a session. `on_conflict` is called if another session of the watch may block it for ever."""

    def end(self, session: WatchedConnection[Any]) -> None:
        """End what `begin` began. The two may be nested."""


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
    """Have a session watched while the block waits for the server. Raises LockWaitOver instead of QueryCanceled.

    If another session of the same watch keeps this one waiting in a way that could last for ever, `on_conflict` is
    called, by another thread.
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
