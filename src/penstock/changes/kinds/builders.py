"""Builds indexes in several sessions at once. Each session takes the next index from a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from penstock.changes.kinds.rebuild_plan import choose_memory, choose_workers, find_share
from penstock.errors import ServerError
from penstock.host.interrupts import holding_interrupts
from penstock.server.changes.builds import cancel, set_build_memory

if TYPE_CHECKING:
    from penstock.changes.context import Context
    from penstock.changes.kinds.rebuild_plan import RebuildPlan
    from penstock.model.load.shape import Change
    from penstock.server.connect.connection import Connection

_CANCEL_INTERVAL_S = 1.0

# How often interrupts are handled, and progress is read if it is reported.
_LOOK_INTERVAL_S = 0.5


class Builders:
    """Threads with one session each. Each builds one index after another."""

    def __init__(
        self,
        context: Context,
        plan: RebuildPlan,
        changes: Sequence[Change],
        *,
        # The bytes of the tables, by OID.
        sizes: Mapping[int, int],
        build: Callable[[Connection, Change], float],
        note: Callable[[Change, float], None],
        # Called every 0.5 s by the waiting thread, with the number of finished indexes, and with the unfinished indexes
        # by the pid of the backend that builds each.
        look: Callable[[int, Mapping[int, Change]], None] | None,
    ) -> None:
        self._context = context
        self._plan = plan
        self._changes = tuple(changes)
        self._waiting = list(changes)
        self._sizes = sizes
        self._build = build
        self._note = note
        self._look = look
        self._done = 0
        self._building: dict[int, Change] = {}
        self._lock = threading.Lock()
        self._connections: list[Connection] = []

    def run(self) -> None:
        """Build all indexes. Raises the first error after all threads have ended."""
        with (
            holding_interrupts() as interrupts,
            ThreadPoolExecutor(self._plan.sessions, thread_name_prefix="penstock-rebuild") as pool,
        ):
            futures = {pool.submit(self._work, number) for number in range(self._plan.sessions)}
            pending = set(futures)
            try:
                while pending:
                    if self._look is not None:
                        with self._lock:
                            done, building = self._done, dict(self._building)
                        self._look(done, building)
                    _, pending = wait(pending, timeout=_LOOK_INTERVAL_S, return_when=FIRST_COMPLETED)
                    interrupts.deliver()
            except BaseException:
                self._stop()
                while pending:
                    # Repeat the cancel: a session may have been between two statements.
                    for connection in list(self._connections):
                        cancel(connection)
                    _, pending = wait(pending, timeout=_CANCEL_INTERVAL_S)
                raise
        for future in futures:
            future.result()

    def _stop(self) -> None:
        with self._lock:
            self._waiting.clear()

    def _take(self) -> Change | None:
        with self._lock:
            return self._waiting.pop(0) if self._waiting else None

    def _work(self, number: int) -> None:
        assert self._context.connect is not None, "who restores tables can open sessions"
        try:
            connection = self._context.connect.connect(label=f"rebuild {number + 1}")
        except ServerError as error:
            # The rebuild continues with fewer sessions; at least one is needed.
            if number == 0:
                self._stop()
                raise
            self._context.notice(f"rebuilding indexes with fewer sessions: {error.message}")
            return
        try:
            with connection:
                self._connections.append(connection)
                pid = connection.info.backend_pid
                while (change := self._take()) is not None:
                    with self._lock:
                        self._building[pid] = change
                    self._set_memory(connection, change)
                    seconds = self._build(connection, change)
                    with self._lock:
                        del self._building[pid]
                        self._done += 1
                        self._note(change, seconds)
        except BaseException:
            self._stop()
            raise

    def _set_memory(self, connection: Connection, change: Change) -> None:
        method = change.record.get("method", "btree")
        table_bytes = self._sizes.get(change.relation_oid, 0)
        workers = choose_workers(self._plan, share=find_share(change, self._changes, self._sizes))
        memory_bytes, may_lower = choose_memory(self._plan, method=method, table_bytes=table_bytes, workers=workers)
        set_build_memory(connection, memory_bytes=memory_bytes, may_lower=may_lower, workers=workers)
