"""Looks at sessions that wait for the server: names who blocks them, and ends waits that last too long.

One thread looks at all sessions of a factory with a connection of its own, which it opens once a session has waited for
a moment. A lock that is not taken at once by other means is waited for under this watch, whatever the statement is.
Locks that would make others wait are taken in short attempts instead (locking.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import psycopg

from penstock.core.catalogue.catalog import BlockedRow, find_blocked
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import LockWaitOver
from penstock.core.connect.waiting import WatchedConnection
from penstock.core.errors import PenstockError

_log = logging.getLogger(__name__)

# How often a session that waits for the server is looked at. Each look costs the server about a millisecond.
_LOOK_S = 0.8
# A session counts as blocked after so many looks in a row. A shorter wait is neither reported nor ended. So attempts of
# locking.py, which last 2 s and report what blocks them, are not reported twice.
_LOOKS_UNTIL_BLOCKED = 3
# The thread ends, and closes its connection, after so many looks at which no session waits.
_IDLE_LOOKS = 3

# How long a command without --retry-for waits for a lock.
DEFAULT_LIMIT_S = 60.0

_CANCEL_TIMEOUT_S = 5.0


@dataclass(slots=True)
class _Wait:
    """The wait of a session. `depth` counts the calls of `begin` that have not ended."""

    session: WatchedConnection[Any]
    since_s: float = 0.0
    depth: int = 0
    on_conflict: Callable[[], None] | None = None
    # How many looks in a row have found the session blocked, and when the first of them was.
    looks: int = 0
    blocked_s: float = 0.0


class LockWatch:
    """Watches what the sessions of one ConnectionFactory wait for. It implements SessionWatch.

    A session that waits for locks of other sessions is reported to `notice`. After `limit_s` seconds its statement is
    cancelled and raises LockWaitOver. A wait for sessions of the same factory is neither reported nor ended.
    """

    def __init__(self, connect: ConnectionFactory) -> None:
        self.limit_s = DEFAULT_LIMIT_S
        self.notice: Callable[[str], None] = _warn
        self._connect = connect
        self._pids: WeakKeyDictionary[WatchedConnection[Any], int] = WeakKeyDictionary()
        self._waits: dict[int, _Wait] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._reported: tuple[str, ...] = ()

    def add(self, session: WatchedConnection[Any]) -> None:
        """Register a session that the factory has opened."""
        with self._lock:
            self._pids[session] = session.info.backend_pid

    def begin(self, session: WatchedConnection[Any], on_conflict: Callable[[], None] | None) -> None:
        """Watch a session until `end` is called for it. A call from the watch's own thread has no effect.

        The watch's thread calls `on_conflict`, possibly more than once, if another session of the same factory blocks
        this one with a lock that it may keep until its transaction ends.
        """
        if threading.current_thread() is self._thread:
            return
        with self._lock:
            wait = self._waits.setdefault(id(session), _Wait(session))
            wait.depth, wait.since_s, wait.looks = wait.depth + 1, time.monotonic(), 0
            wait.on_conflict = on_conflict or wait.on_conflict
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-lock-watch", daemon=True)
                self._thread.start()

    def end(self, session: WatchedConnection[Any]) -> None:
        """End one call of `begin`. The session is watched until all of its calls of `begin` have ended."""
        with self._lock:
            wait = self._waits.get(id(session))
            if wait is not None:
                wait.depth -= 1
                if not wait.depth:
                    del self._waits[id(session)]

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        idle = 0
        try:
            while True:
                time.sleep(_LOOK_S)
                with self._lock:
                    now_s = time.monotonic()
                    waits = [wait for wait in self._waits.values() if now_s - wait.since_s >= _LOOK_S]
                    idle = 0 if self._waits else idle + 1
                if waits:
                    self._look(waits)
                elif idle >= _IDLE_LOOKS:
                    self._close()
                    with self._lock:
                        if not self._waits:
                            # The next wait starts another thread.
                            self._thread = None
                            return
        except BaseException:
            self._close()
            with self._lock:
                self._thread = None
            raise

    def _look(self, waits: Iterable[_Wait]) -> None:
        with self._lock:
            pids = {session: pid for session, pid in self._pids.items() if not session.closed}
        rows = {row.pid: row for row in self._find_blocked([*pids.values()])}
        others: set[str] = set()
        over: list[tuple[_Wait, BlockedRow]] = []
        for wait in waits:
            row = rows.get(pids.get(wait.session, 0))
            wait.looks = 0 if row is None else wait.looks + 1
            wait.blocked_s = wait.blocked_s if wait.looks > 1 else time.monotonic()
            if row is None or wait.looks < _LOOKS_UNTIL_BLOCKED:
                continue
            if row.waits_for_own and wait.on_conflict is not None:
                wait.on_conflict()
                break
            others |= set(row.others)
            if row.others and time.monotonic() - wait.blocked_s >= self.limit_s:
                over.append((wait, row))
        if others and (found := tuple(sorted(others))) != self._reported:
            self.notice(f"waiting for a lock of {'; '.join(found)}")
            self._reported = found
        # A wait ends after it is reported, so that its session does not end the command first.
        for wait, row in over:
            self._end_wait(wait, row)

    def _end_wait(self, wait: _Wait, row: BlockedRow) -> None:
        wait.session.wait_over = LockWaitOver(self.limit_s, row.others, row.gids)
        try:
            wait.session.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
        except psycopg.Error as error:
            _log.info("cannot cancel a statement that waits for a lock: %s", error)

    def _find_blocked(self, pids: Sequence[int]) -> list[BlockedRow]:
        """Return the blocked sessions, or none if the server has no free connection for this look."""
        try:
            if self._connection is None:
                self._connection = self._connect.connect(label="watch")
            return find_blocked(self._connection, pids)
        except PenstockError as error:
            _log.info("cannot look at what sessions wait for: %s", error.message)
            self._close()
            return []

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def watch_locks(connect: ConnectionFactory) -> LockWatch:
    """Return the LockWatch of a factory. The first call creates it."""
    if not isinstance(connect.watch, LockWatch):
        connect.watch = LockWatch(connect)
    return connect.watch


def read_limit_s(session: psycopg.Connection[Any]) -> float:
    """Return how many seconds a session may wait for locks of other sessions: its watch's limit, without a watch 60."""
    watch = session.watch if isinstance(session, WatchedConnection) else None
    return watch.limit_s if isinstance(watch, LockWatch) else DEFAULT_LIMIT_S


def _warn(text: str) -> None:
    _log.warning("%s", text)
