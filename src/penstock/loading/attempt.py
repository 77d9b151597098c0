"""Runs one attempt at a load, with its threads and sessions, from the first connection to the last commit.

A batch is committed when it is full. The last batch of each session is committed only after every session has sent all
its rows, so a load with less than one batch per session is all or nothing. The ledger has what the attempt has
committed, however the attempt ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg

from penstock.core.connect.connection import Connection
from penstock.core.connect.errors import hint_for, is_passing
from penstock.core.errors import PenstockError, ServerError
from penstock.core.host.process import Interrupts
from penstock.core.sql import fetch_rows
from penstock.core.units import count_nouns
from penstock.core.values.accounts import BackendIo, FileOutcome, StepProgress, Stopwatch
from penstock.loading.copy.copy import CopyFailed
from penstock.loading.pace import Pace, next_pace
from penstock.loading.read.feed import Abandoned, BlockFeed
from penstock.loading.send.blocks import BlockUnit
from penstock.loading.send.session import LoadSession, Sending

if TYPE_CHECKING:
    from penstock.loading.imports.objects import ObjectFeed, ObjectSession, ObjectUnit


_log = logging.getLogger(__name__)

# How long to wait for a cancelled session to end before it is cancelled again.
_CANCEL_INTERVAL_S = 1.0

# How often progress is reported: often enough for a smooth progress bar, and rarely enough to cost nothing.
_PROGRESS_INTERVAL_S = 0.1

# How long throughput is measured before the number of sessions is adjusted. One checkpoint or one slow block must not
# decide the measured throughput.
_PACE_INTERVAL_S = 3.0


class LoadAttempt:
    """One attempt to load what is left of a claimed load. `began_s` is when the load began, by `tools.clock`.

    Either sessions send blocks of rows (BlockUnit), or the server imports objects from S3 (ObjectUnit). Both units have
    a feed, and sessions with the same methods. Interrupts are held back while the attempt runs, and are handled each
    time it checks its sessions.
    """

    def __init__(self, sending: Sending, *, interrupts: Interrupts, began_s: float) -> None:
        self._sending = sending
        self._plan = plan = sending.plan
        self._tools = tools = sending.tools
        self._given = given = sending.given
        self._interrupts = interrupts
        self._first = sending.first
        self._began_s = began_s
        self._sessions: list[LoadSession | ObjectSession] = []
        self._futures: set[Future[None]] = set()
        self._pool = ThreadPoolExecutor(max_workers=given.sessions.maximum, thread_name_prefix="penstock-session")
        # The objects that this attempt could not read and has skipped, each with its error.
        self.unreadable: dict[int, PenstockError] = {}
        self._unit = self._choose_unit()
        self._feed = self._unit.feed
        self._size_bytes = sending.claimed.member.size_bytes
        self._is_staged = all(target.is_staged for target in plan.targets)
        self._to_rebuild = sum(len(target.indexes.dropped) for target in plan.targets)
        self._pace = Pace(sessions=given.sessions.initial)
        self._paced_s, self._paced_bytes = tools.clock(), 0
        self._is_full = False
        self.is_stopped = False
        # The seconds from the start of the first session to the last commit, or to the failure.
        self.rows_s = 0.0
        # The server's counters of I/O and WAL for the sessions of this attempt, read after all rows are committed.
        self.io: BackendIo | None = None

    def run(self) -> None:
        """Load until nothing is left, or until `stop` was called.

        Raises PenstockError; the caller then calls `abandon`.
        """
        # Progress is shown from the beginning, before the first row is sent.
        self.report()
        # The first session has run statements before this attempt, so subtract what it has read and written until now.
        before = self._read_io()
        watch = Stopwatch(self._tools.clock)
        try:
            self._send_all()
        finally:
            self.rows_s = watch.lap()
        if before is not None and (after := self._read_io()) is not None:
            self.io = after.add(before, sign=-1)
        self._pool.shutdown(wait=True)
        self._feed.close()
        self.report()

    def _read_io(self) -> BackendIo | None:
        pids = {running.session.backend_pid for running in self._sessions}
        return read_backend_io(self._first, pids | {self._first.info.backend_pid})

    def _send_all(self) -> None:
        # Claim the first objects of this host before sessions are opened.
        self._unit.look([])
        self._add_sessions(self._given.sessions.initial)
        try:
            self._stream()
        finally:
            self._unit.close()
        self._commit()

    def stop(self) -> None:
        """Make the sessions commit what they have sent and take no more blocks."""
        self.is_stopped = True
        self._feed.stop()
        self._tools.sources.interrupt()

    def close(self) -> None:
        """Close every session except the first, which the caller closes."""
        for running in self._sessions:
            if running.number > 0:
                running.session.close()

    def abandon(self) -> None:
        """Stop every thread, roll back the transaction of every session, and close all sessions, including the first.

        This may be called at any time.
        """
        self._feed.abandon(Abandoned())
        self._tools.sources.interrupt()
        for future in self._futures:
            future.cancel()
        pending = set(self._futures)
        while pending:
            # Repeat the request, because it has no effect if it arrives while the session is between two statements.
            for running in list(self._sessions):
                running.session.cancel()
            _, pending = wait(pending, timeout=_CANCEL_INTERVAL_S)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._feed.close()
        for running in self._sessions:
            running.session.abandon()
        self._first.close()

    def _choose_unit(self) -> BlockUnit | ObjectUnit:
        if self._plan.route.is_import:
            from penstock.loading.imports.objects import ObjectUnit  # noqa: PLC0415 (for who imports from S3)

            claimed = self._sending.claimed
            return ObjectUnit(
                self._plan,
                self._tools,
                claimed.member.work,
                claim=claimed.claim,
                tables=claimed.tables,
                sessions=self._given.sessions.initial,
            )
        return BlockUnit(self._sending, self.unreadable)

    # ---------------------------------------------------------------- streaming

    def _add_sessions(self, count: int) -> None:
        for number in range(len(self._futures), count):
            future = self._pool.submit(self._run_session, number)
            future.add_done_callback(self._session_ended)
            self._futures.add(future)

    def _run_session(self, number: int) -> None:
        try:
            connection = self._first if number == 0 else self._tools.connect.connect(label=f"session {number + 1}")
        except ServerError as error:
            # Continue with the sessions that are open. Other clients use the remaining connections.
            self._tools.notice(f"continuing with {count_nouns(number, 'session')}: {error.message}")
            self._is_full = True
            self._feed.set_sessions(min(number, self._feed.sessions))
            return
        running = self._unit.open_session(number, connection)
        self._sessions.append(running)
        running.run()
        if number >= self._feed.sessions > 0 and not running.has_sealed:
            # This session ended before the others because another host needs its connection.
            running.session.close()

    def _session_ended(self, future: Future[None]) -> None:
        failure = future.exception() if not future.cancelled() else None
        if failure is not None and not isinstance(failure, Abandoned):
            self._feed.abandon(failure)

    def _stream(self) -> None:
        """Wait for the sessions, report progress, and adjust the number of sessions; raises the first failure."""
        pending = self._futures
        while pending:
            try:
                pending = self._wait(pending)
                self._interrupts.deliver()
            except KeyboardInterrupt:
                self._note_interrupt()
        self._raise_failure()

    def _wait(self, pending: set[Future[None]]) -> set[Future[None]]:
        """Wait for a moment, check failures, progress and throughput, and return the sessions not done yet."""
        _, pending = wait(pending, timeout=_PROGRESS_INTERVAL_S, return_when=FIRST_COMPLETED)
        self._raise_failure()
        brake = self._tools.brake
        self.report(activity="" if brake is None else brake.activity)
        self._unit.look(list(self._sessions))
        if brake is not None:
            brake.look(self._feed)
            if brake.activity:
                # The rate of the present number of sessions is measured without the time that the load is held.
                self._paced_s, self._paced_bytes = self._tools.clock(), self._bytes_copied()
        elapsed_s = self._tools.clock() - self._paced_s
        is_adaptive = self._given.sessions.is_adaptive and not self.is_stopped and not self._is_full
        if is_adaptive and pending and elapsed_s >= _PACE_INTERVAL_S:
            self._keep_pace(elapsed_s)
            pending = {future for future in self._futures if not future.done()}
        return pending

    def _note_interrupt(self) -> None:
        """Make the sessions finish their batches after the first interrupt. Raise KeyboardInterrupt at the second.

        Raise KeyboardInterrupt at the first interrupt already if the load is atomic or cannot be resumed, or if each
        batch is a whole table.
        """
        plan = self._plan
        if self.is_stopped or plan.job.rules.atomic or not plan.is_repeatable or plan.batch.is_one_table:
            raise KeyboardInterrupt
        self._tools.notice("finishing the current batches; interrupt again to cancel them")
        self.stop()

    def _raise_failure(self) -> None:
        """Raise the failure of the load, if there is one.

        The sessions are checked too: a session is done a moment before its callback passes its failure to the feed.
        """
        if self._feed.failure is not None:
            raise self._feed.failure
        for future in self._futures:
            if future.done() and (failure := future.exception()) is not None:
                raise failure

    def _keep_pace(self, elapsed_s: float) -> None:
        bytes_copied = self._bytes_copied()
        rate = (bytes_copied - self._paced_bytes) / elapsed_s
        following = next_pace(self._pace, rate=rate, plan=self._given.sessions)
        if following.sessions != self._pace.sessions:
            _log.info("sessions %d -> %d at %.1f MB/s", self._pace.sessions, following.sessions, rate / 1e6)
            self._feed.set_sessions(following.sessions)
            self._add_sessions(following.sessions)
        self._pace, self._paced_s, self._paced_bytes = following, self._tools.clock(), bytes_copied

    def _bytes_copied(self) -> int:
        return sum(running.totals.bytes_copied for running in self._sessions)

    def report(self, activity: str = "", steps: tuple[StepProgress, ...] = ()) -> None:
        """Call `on_progress`, if it is given, with the progress of the load.

        `activity` names work other than sending rows, such as a rebuild. `steps` are the steps after the last row.
        """
        if self._tools.on_progress is not None:
            elapsed_s = self._tools.clock() - self._began_s
            progress = self._feed.progress(
                bytes_copied=self._bytes_copied(), size_bytes=self._size_bytes, elapsed_s=elapsed_s
            )
            extended = replace(
                progress, activity=activity, steps=steps, to_rebuild=self._to_rebuild, is_staged=self._is_staged
            )
            self._tools.on_progress(extended)

    # ---------------------------------------------------------------- the end

    def _commit(self) -> None:
        """Commit the last batches of all sessions at the same time, after all of them have been sealed.

        A COMMIT that was sent cannot be undone, so interrupts are ignored until the server has answered.
        """
        self._sending.format_check.conclude()
        self._sending.value_check.conclude()
        self._tools.warnings.refuse()
        sealed = [running for running in self._sessions if running.has_sealed]
        commits = [self._pool.submit(running.commit) for running in sealed]
        waiting = set(commits)
        while waiting:
            waiting = wait(waiting, timeout=_PROGRESS_INTERVAL_S).not_done
            self._interrupts.drop()
        for commit in commits:
            try:
                commit.result()
            except CopyFailed as failure:
                raise _commit_error(failure) from failure

    # ---------------------------------------------------------------- results

    @property
    def feed(self) -> BlockFeed | ObjectFeed:
        """Return the queue from which sessions take blocks or objects. It counts the bytes read and the rows sent."""
        return self._feed

    @property
    def sessions(self) -> list[LoadSession | ObjectSession]:
        """Return the sessions that this attempt has opened."""
        return self._sessions

    def files(self) -> list[tuple[int, FileOutcome]]:
        """Return the rows and seconds of each object of this attempt, with the object's number in the ledger."""
        return list(zip((work.number for work in self._unit.work), self._feed.outcomes(), strict=True))


def _commit_error(failure: CopyFailed) -> PenstockError:
    """Return the error for a COMMIT that failed.

    Only the ledger shows whether the server has committed nevertheless.
    """
    report = failure.report
    return ServerError(
        report.message,
        detail=report.detail,
        hint=hint_for(report.sqlstate),
        sqlstate=report.sqlstate,
        is_transient=is_passing(report.sqlstate, is_disconnect=failure.is_disconnect),
    )


def read_backend_io(connection: Connection, pids: Iterable[int]) -> BackendIo | None:
    """Return the I/O and the WAL that backends have counted since they started, None if the counters cannot be read.

    Before PostgreSQL 18, the counters are not those of `pids`: they are the WAL of the whole server and, from
    PostgreSQL 16 on, the I/O of all client backends. A backend reports its counters at a commit only if
    CopySession.commit requests that. If the connection is lost, None is returned, because the next statement raises the
    error.
    """
    try:
        (found,) = fetch_rows(connection, "loading/backend_io", BackendIo, pids=sorted(pids))
    except psycopg.Error:
        return None
    return found
