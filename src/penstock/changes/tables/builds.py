"""Builds indexes in several sessions at once: sets the sessions up, observes them, and cancels them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Protocol

import psycopg

from penstock.changes.tables.rebuild_plan import (
    RebuildPlan,
    chain_rivals,
    choose_memory,
    choose_workers,
    cost_share,
    plan_rebuild,
)
from penstock.changes.values import Change
from penstock.core.connect.connection import Connection, ConnectionFactory
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import ServerError
from penstock.core.host.machine import cpu_count, memory_bytes
from penstock.core.host.process import holding_interrupts
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_rows, run_query
from penstock.core.values.accounts import StepProgress

_CANCEL_TIMEOUT_S = 10.0

# One word for each phase that the server reports. The phases are from src/backend/catalog/system_views.sql and
# btbuildphasename.
_WORDS = {
    "building index: scanning table": "scanning",
    "building index: performing merge of partitions": "sorting",
    "building index: sorting live tuples": "sorting",
    "building index: sorting dead tuples": "sorting",
    "building index: loading tuples in tree": "writing",
    "building index": "building",
}


@slotted
class BuildRow:
    """The row of progress.sql: an index that a session builds now, its phase, and how much of the phase is done."""

    pid: int
    phase: str
    done: int
    # 0 if the phase reports no progress.
    total: int


def read_build_progress(connection: Connection, names: Mapping[int, str]) -> tuple[StepProgress, ...]:
    """Return the progress of each index build in `names`, in the same order. Raises ServerError.

    `names` has the name of the index by the pid of the backend that builds it.
    """
    if not names:
        return ()
    with translate_errors("reading the progress of index builds"):
        rows = fetch_rows(connection, "changes/progress", BuildRow)
    found = {row.pid: row for row in rows}
    return tuple(_describe(name, found.get(pid)) for pid, name in names.items())


def _describe(name: str, row: BuildRow | None) -> StepProgress:
    if row is None:
        return StepProgress(name=name, phase="", fraction=None)
    fraction = min(1.0, row.done / row.total) if row.total > 0 else None
    return StepProgress(name=name, phase=_WORDS.get(row.phase, ""), fraction=fraction)


def set_up_build(connection: Connection, *, memory_bytes: int, may_lower: bool, workers: int) -> None:
    """Set the session's maintenance_work_mem, parallel workers and wal_compression for the next index build.

    A larger maintenance_work_mem is kept unless `may_lower` is true. wal_compression becomes lz4 if it is off, and the
    server and the role's privileges allow it. Raises ServerError.
    """
    with translate_errors("preparing a session that builds indexes"):
        run_query(
            connection, "changes/build_session", memory_kb=memory_bytes // 1024, may_lower=may_lower, workers=workers
        )


def cancel(connection: Connection) -> None:
    """Ask the server to cancel the statement that the session runs. Errors are ignored."""
    with contextlib.suppress(psycopg.Error):
        connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)


_CANCEL_INTERVAL_S = 1.0

# How often interrupts are handled, and progress is read if it is reported.
_LOOK_INTERVAL_S = 0.5


class Opener(Protocol):
    """What opens the sessions of Builders, and takes their messages."""

    @property
    def connect(self) -> ConnectionFactory | None:
        """Return what opens sessions."""

    @property
    def notice(self) -> Callable[[str], None]:
        """Return what shows a message."""


def plan_builds(connection: Connection, count: int, *, is_local: bool) -> RebuildPlan:
    """Return with how many sessions, CPUs and bytes of memory `count` indexes are built.

    `is_local` says whether the server runs on this machine, so that both are known.
    """
    if not is_local:
        return plan_rebuild(count)
    return plan_rebuild(count, cpu_count=cpu_count(), memory_bytes=memory_bytes(connection.info.backend_pid))


class Builders:
    """Threads, each with a session of its own that builds one index after another."""

    def __init__(
        self,
        context: Opener,
        plan: RebuildPlan,
        changes: Sequence[Change],
        *,
        # The bytes of the tables, by OID.
        sizes: Mapping[int, int],
        # Returns the seconds that a build took, None if it failed and the others are to be built.
        build: Callable[[Connection, Change], float | None],
        note: Callable[[Change, float], None],
        # Called every 0.5 s by the waiting thread, with the number of finished indexes, and with the unfinished indexes
        # by the pid of the backend that builds each.
        look: Callable[[int, Mapping[int, Change]], None] | None,
    ) -> None:
        self._context = context
        self._plan = plan
        self._changes = tuple(changes)
        self._waiting = chain_rivals(changes)
        self._sizes = sizes
        self._build = build
        self._note = note
        self._look = look
        self._is_stopped = False
        self._done = 0
        self._building: dict[int, Change] = {}
        self._lock = threading.Lock()
        self._connections: list[Connection] = []

    def run(self) -> None:
        """Build all indexes. Raises the first error of any thread after all threads have ended.

        After an error that `build` raises, no further build is started.
        """
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
            self._is_stopped = True

    def _take(self, chain: list[Change]) -> Change | None:
        """Return the next index of a chain, or the first index of the next chain. Each thread has a chain."""
        with self._lock:
            if not chain and self._waiting:
                chain += self._waiting.pop(0)
            return chain.pop(0) if chain and not self._is_stopped else None

    def _work(self, number: int) -> None:
        assert self._context.connect is not None, "who restores tables can open sessions"
        try:
            connection = self._context.connect.connect(label=f"rebuild {number + 1}")
        except ServerError as error:
            # Continue the rebuild with fewer sessions. It needs at least one.
            if number == 0:
                self._stop()
                raise
            self._context.notice(f"rebuilding indexes with fewer sessions: {error.message}")
            return
        try:
            with connection:
                self._connections.append(connection)
                pid = connection.info.backend_pid
                chain: list[Change] = []
                while (change := self._take(chain)) is not None:
                    with self._lock:
                        self._building[pid] = change
                    self._set_memory(connection, change)
                    seconds = self._build(connection, change)
                    with self._lock:
                        del self._building[pid]
                        if seconds is not None:
                            self._done += 1
                            self._note(change, seconds)
        except BaseException:
            self._stop()
            raise

    def _set_memory(self, connection: Connection, change: Change) -> None:
        method = change.record.get("method", "btree")
        table_bytes = self._sizes.get(change.relation_oid, 0)
        workers = choose_workers(self._plan, share=cost_share(change, self._changes, self._sizes))
        memory_bytes, may_lower = choose_memory(self._plan, method=method, table_bytes=table_bytes, workers=workers)
        set_up_build(connection, memory_bytes=memory_bytes, may_lower=may_lower, workers=workers)
