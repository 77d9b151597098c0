"""Notices when sessions of one load wait for each other, which the server never ends, or for others' locks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.errors import ServerError
from penstock.server.table.conflicts import find_blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.loading.context import LoadTools
    from penstock.loading.stream.session import LoadSession
    from penstock.server.connect.connection import Connection
    from penstock.server.table.conflicts import BlockedRow

_log = logging.getLogger(__name__)

# No byte sent for so long is worth a look at the server; a look costs it a millisecond.
_STALL_S = 1.0


class ConflictWatch:
    """Looks at a stalled load's backends, cancels one that waits for another of them, and tells of others' locks.

    Opens its own connection at the first stall.
    """

    def __init__(self, tools: LoadTools) -> None:
        self._tools = tools
        self._connection: Connection | None = None
        self._bytes_sent = -1
        self._blocked: frozenset[int] = frozenset()
        self._told: tuple[str, ...] = ()
        self._looked_s = 0.0

    def look(self, sessions: Sequence[LoadSession], *, bytes_sent: int) -> None:
        """Look once a second while nothing moves."""
        now_s = self._tools.clock()
        if bytes_sent != self._bytes_sent:
            self._bytes_sent, self._looked_s, self._blocked = bytes_sent, now_s, frozenset()
            return
        if now_s - self._looked_s < _STALL_S:
            return
        self._looked_s = now_s
        waiting = self._find_blocked([running.session.backend_pid for running in sessions])
        blocked = frozenset(row.pid for row in waiting)
        # Twice: a lock that is held for a moment is none to fail for, or to speak of.
        lasting, self._blocked = blocked & self._blocked, blocked
        self._tell([row for row in waiting if row.pid in lasting])
        stuck = {row.pid for row in waiting if row.pid in lasting and row.waits_for_own}
        for running in sessions:
            if running.session.backend_pid in stuck:
                running.is_in_conflict = True
                running.session.cancel()
                return

    def _tell(self, waiting: Sequence[BlockedRow]) -> None:
        """Name whoever holds the locks that sessions wait for, once."""
        others = tuple(sorted({other for row in waiting for other in row.others}))
        if others and others != self._told:
            self._tools.notice(f"waiting for a lock of {'; '.join(others)}")
            self._told = others

    def _find_blocked(self, pids: Sequence[int]) -> list[BlockedRow]:
        """Return who waits, or nobody where the server has no connection to spare for the question."""
        try:
            if self._connection is None:
                self._connection = self._tools.connect.connect(label="watch")
            return find_blocked(self._connection, pids)
        except ServerError as error:
            _log.info("cannot read the load's sessions: %s", error.message)
            self.close()
            return []

    def close(self) -> None:
        """Close the connection, if one was opened."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
