"""Watches for autovacuum at the tables that a load fills, and has it paused there once it is seen.

On a thread and a connection of its own, so that the load neither waits nor fails for it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.loading.autovacuum_plan import choose_paused
from penstock.server.autovacuum import find_visits
from penstock.server.shape.sessions import cancel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.loading.tools import LoadTools
    from penstock.model.table import TableName
    from penstock.server.autovacuum import Visit
    from penstock.server.connection import Connection

_log = logging.getLogger(__name__)

# Autovacuum comes to a table once a minute at the most, by default. A look costs the server a millisecond.
LOOK_INTERVAL_S = 10.0

_CANCEL_INTERVAL_S = 1.0
# A look is over at once; longer only a connection takes that cannot be had.
_END_PATIENCE_S = 1.0


class AutovacuumWatch:
    """Looks every few seconds from `start` to `stop`.

    `tables` are those to watch, `pids` tells the backends that write to them. `pause(visit, connection)` pauses
    autovacuum; it returns False where that has to wait. `began_s` is when the load began, by the clock of `tools`.
    """

    def __init__(
        self,
        tools: LoadTools,
        tables: Mapping[int, TableName],
        *,
        pids: Callable[[], Sequence[int]],
        remaining_s: Callable[[], float | None],
        pause: Callable[[Visit, Connection], bool],
        began_s: float,
    ) -> None:
        self._tools = tools
        self._tables = tables
        self._pids = pids
        self._remaining_s = remaining_s
        self._pause = pause
        self._began_s = began_s
        self._connection: Connection | None = None
        # Where autovacuum is paused already, or let be.
        self._left: set[int] = set()
        self._is_over = threading.Event()
        self._pausing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="penstock-autovacuum", daemon=True)

    def start(self) -> None:
        """Look now, and then every few seconds."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; once this returns, nothing is paused any more. An interrupt waits for that."""
        self._is_over.set()
        is_still = self._pausing.acquire(blocking=False)
        while not is_still:
            with contextlib.suppress(KeyboardInterrupt):
                # More than once: it may have been between two statements.
                if (connection := self._connection) is not None:
                    cancel(connection)
                is_still = self._pausing.acquire(timeout=_CANCEL_INTERVAL_S)
        self._thread.join(_END_PATIENCE_S)

    def _run(self) -> None:
        try:
            self._look()
            while not self._is_over.wait(LOOK_INTERVAL_S):
                self._look()
        finally:
            self._disconnect()

    def _look(self) -> None:
        try:
            for visit in choose_paused(self._find_visits(), left=self._left, remaining_s=self._remaining_s()):
                with self._pausing:
                    if not self._is_over.is_set():
                        self._pause_at(visit)
        except PenstockError as error:
            # The server has no connection to spare, or the one that was is lost.
            _log.info("cannot look for autovacuum: %s", error.message)
            self._disconnect()

    def _find_visits(self) -> list[Visit]:
        if self._connection is None:
            self._connection = self._tools.connect.connect(label="autovacuum watch")
        visits = find_visits(
            self._connection,
            pids=self._pids(),
            target_oids=list(self._tables),
            since_s=self._tools.clock() - self._began_s,
        )
        for visit in visits:
            if visit.prevents_wraparound and visit.relation_oid not in self._left:
                _log.info("autovacuum at %s prevents wraparound: it is let be", visit.name)
                self._left.add(visit.relation_oid)
        return visits

    def _pause_at(self, visit: Visit) -> None:
        assert self._connection is not None
        try:
            if self._pause(visit, self._connection):
                self._left.add(visit.relation_oid)
        except PenstockError as error:
            if self._is_over.is_set():
                return
            _log.info("autovacuum goes on at %s: %s %s", visit.name, error.message, error.detail)
            if self._connection.closed:
                raise
            self._left.add(visit.relation_oid)
            self._tools.notice(f'autovacuum goes on at "{visit.name}": {error.message}')

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
