"""Detects sessions that wait for each other, which the server does not detect as a deadlock, or for other sessions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import ServerError
from penstock.server.table.conflicts import BlockedRow, find_blocked

if TYPE_CHECKING:
    from penstock.loading.context import LoadTools
    from penstock.loading.imports.session import ObjectSession
    from penstock.loading.stream.session import LoadSession
    from penstock.server.connect.connection import Connection

_log = logging.getLogger(__name__)

# While no byte is sent, locks are looked up once in this many seconds (blocked.sql). Each look-up costs the server
# about a millisecond.
_STALL_S = 1.0


class ConflictWatch:
    """Checks the backends of a stalled load: cancels one that waits for another of them, and reports other blockers.

    Opens its own connection at the first stall.
    """

    def __init__(self, tools: LoadTools) -> None:
        self._tools = tools
        self._connection: Connection | None = None
        self._bytes_sent = -1
        self._blocked: frozenset[int] = frozenset()
        self._reported: tuple[str, ...] = ()
        self._looked_s = 0.0

    def look(self, sessions: Sequence[LoadSession | ObjectSession], *, bytes_sent: int) -> None:
        """Check once a second while no byte is sent."""
        now_s = self._tools.clock()
        if bytes_sent != self._bytes_sent:
            self._bytes_sent, self._looked_s, self._blocked = bytes_sent, now_s, frozenset()
            return
        if now_s - self._looked_s < _STALL_S:
            return
        self._looked_s = now_s
        waiting = self._find_blocked([running.session.backend_pid for running in sessions])
        blocked = frozenset(row.pid for row in waiting)
        # A backend must be blocked at two checks in a row: a short wait is neither cancelled nor reported.
        lasting, self._blocked = blocked & self._blocked, blocked
        self._report([row for row in waiting if row.pid in lasting])
        stuck = {row.pid for row in waiting if row.pid in lasting and row.waits_for_own}
        for running in sessions:
            if running.session.backend_pid in stuck:
                running.is_in_conflict = True
                running.session.cancel()
                return

    def _report(self, waiting: Sequence[BlockedRow]) -> None:
        """Report the other sessions that hold the locks, unless they were reported last time."""
        others = tuple(sorted({other for row in waiting for other in row.others}))
        if others and others != self._reported:
            self._tools.notice(f"waiting for a lock of {'; '.join(others)}")
            self._reported = others

    def _find_blocked(self, pids: Sequence[int]) -> list[BlockedRow]:
        """Return the blocked backends, or none if the server has no free connection for this check."""
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
