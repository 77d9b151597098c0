"""Notices when sessions of one load wait for each other, which the server never ends (server/conflicts.py)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.errors import ServerError
from penstock.server.conflicts import find_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.loading.session import LoadSession
    from penstock.server.connection import Connection, ConnectionFactory

_log = logging.getLogger(__name__)

# No byte sent for so long is worth a look at the server; a look costs it a millisecond.
_STALL_S = 1.0


class ConflictWatch:
    """Looks at a stalled load's backends and cancels one that waits for another of them.

    Opens its own connection at the first stall.
    """

    def __init__(self, connect: ConnectionFactory, clock: Callable[[], float]) -> None:
        self._connect = connect
        self._clock = clock
        self._connection: Connection | None = None
        self._bytes_sent = -1
        self._blocked: frozenset[int] = frozenset()
        self._looked_s = 0.0

    def look(self, sessions: Sequence[LoadSession], *, bytes_sent: int) -> None:
        """Look once a second while nothing moves."""
        now_s = self._clock()
        if bytes_sent != self._bytes_sent:
            self._bytes_sent, self._looked_s, self._blocked = bytes_sent, now_s, frozenset()
            return
        if now_s - self._looked_s < _STALL_S:
            return
        self._looked_s = now_s
        blocked = self._find_blocked([running.session.backend_pid for running in sessions])
        # Twice: a lock that is held for a moment is none to fail for.
        stuck, self._blocked = blocked & self._blocked, blocked
        for running in sessions:
            if running.session.backend_pid in stuck:
                running.is_in_conflict = True
                running.session.cancel()
                return

    def _find_blocked(self, pids: Sequence[int]) -> frozenset[int]:
        """Return who waits for whom, or nobody where the server has no connection to spare for the question."""
        try:
            if self._connection is None:
                self._connection = self._connect.connect(label="watch")
            return find_blocked(self._connection, pids)
        except ServerError as error:
            _log.info("cannot look at the load's sessions: %s", error.message)
            self.close()
            return frozenset()

    def close(self) -> None:
        """Close the connection, if one was opened."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
