"""Carries out a plan: prepare, stream, finish; no decisions beyond the pace of `pace.py`.

All sessions commit at the end, at the same time, once every object has ended well. An error before that leaves
nothing: the sessions roll back and a table made for the load is dropped. Between the first and the last commit a lost
connection leaves the rows of the sessions that have committed; the error then says so.
"""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from penstock.errors import Interrupted, PenstockError, ServerError
from penstock.loading.feed import Abandoned, BlockFeed, reader_limit
from penstock.loading.objects import open_blocks
from penstock.loading.pace import Pace, next_pace
from penstock.loading.session import LoadSession
from penstock.loading.watch import ConflictWatch
from penstock.model.outcome import LoadOutcome
from penstock.server.copy import CopyFailed, CopySession
from penstock.server.errors import find_hint
from penstock.server.sequences import advance_sequences
from penstock.server.tables import CreatedTable, create_text_table, drop_created

if TYPE_CHECKING:
    from penstock.loading.tools import LoadTools
    from penstock.model.plan import LoadPlan
    from penstock.server.connection import Connection

_log = logging.getLogger(__name__)

# How long a cancelled session is given before it is cancelled again.
_CANCEL_INTERVAL_S = 1.0

# Often enough for a bar to move smoothly, seldom enough to cost nothing.
_PROGRESS_INTERVAL_S = 0.1

# Long enough for a throughput that a checkpoint or a slow block does not decide.
_PACE_INTERVAL_S = 3.0


def run_load(plan: LoadPlan, tools: LoadTools) -> LoadOutcome:
    """Load everything the plan names and return what was done; raises PenstockError and then leaves nothing behind."""
    began_s = tools.clock()
    created = _prepare(plan, tools)
    run = _LoadRun(plan, tools, began_s=began_s)
    try:
        outcome = run.run()
    except BaseException:
        run.abandon()
        if not run.has_committed:
            _undo(created, tools)
        raise
    _advance_sequences(plan, tools)
    return outcome


def _prepare(plan: LoadPlan, tools: LoadTools) -> list[CreatedTable]:
    """Make the tables that --create asked for; they must be there before the sessions' transactions begin."""
    wanted = {target.table: target.create_columns for target in plan.targets if target.create_columns is not None}
    if not wanted:
        return []
    created: list[CreatedTable] = []
    with tools.connect.borrow() as connection:
        try:
            for table, columns in wanted.items():
                _log.info("creating table %s", table)
                created.append(create_text_table(connection, table, columns))
        except BaseException:
            _drop(connection, created)
            raise
    return created


def _undo(created: list[CreatedTable], tools: LoadTools) -> None:
    """Drop what `_prepare` made; where the server is gone it stays, empty, and the load's own error is what counts."""
    if not created:
        return
    try:
        with tools.connect.borrow() as connection:
            _drop(connection, created)
    except ServerError as error:
        names = ", ".join(f'"{table.name}"' for table in created)
        _log.warning("could not drop %s again: %s", names, error.message)
        if tools.on_notice is not None:
            tools.on_notice(f"made for this load and not dropped again: {names} ({error.message})")


def _drop(connection: Connection, created: list[CreatedTable]) -> None:
    for table in reversed(created):
        drop_created(connection, table)


def _advance_sequences(plan: LoadPlan, tools: LoadTools) -> None:
    fed = [
        (target.facts, target.column_map.columns)
        for target in plan.targets
        if target.facts is not None and any(column.sequence for column in target.facts.columns)
    ]
    if not fed:
        return
    messages: list[str] = []
    try:
        with tools.connect.borrow() as connection:
            for facts, columns in fed:
                messages += advance_sequences(connection, facts, columns)
    except (PenstockError, KeyboardInterrupt) as error:
        # The rows are in; nothing that happens here must look like a failed load.
        messages.append(f"sequences were not advanced: {error or 'interrupted'}")
    for message in messages:
        if tools.on_notice is not None:
            tools.on_notice(message)


class _LoadRun:
    """The threads of one load, from the first connection to the last commit."""

    def __init__(self, plan: LoadPlan, tools: LoadTools, *, began_s: float) -> None:
        self._plan = plan
        self._tools = tools
        self._began_s = began_s
        self._sessions: list[LoadSession] = []
        self._futures: set[Future[None]] = set()
        self._pool = ThreadPoolExecutor(max_workers=plan.sessions.maximum, thread_name_prefix="penstock-session")
        self._feed = BlockFeed(
            plan.targets,
            lambda target, source: open_blocks(target, source, tools),
            reader_limit=reader_limit(plan.targets, sessions=plan.sessions.initial),
            sessions=plan.sessions.initial,
            is_in_job_order=plan.is_in_job_order,
            clock=tools.clock,
        )
        self._watch = ConflictWatch(tools.connect, tools.clock)
        self._is_full = False
        self.has_committed = False

    def run(self) -> LoadOutcome:
        self._add_sessions(self._plan.sessions.initial)
        try:
            self._stream()
        except KeyboardInterrupt as exc:
            raise Interrupted("load interrupted", detail="Nothing was loaded.") from exc
        finally:
            self._watch.close()
        self._commit()
        self._feed.close()
        self._report_progress()
        return self._outcome()

    def abandon(self) -> None:
        """Stop every thread and roll back every session; safe at any point."""
        self._feed.abandon(Abandoned())
        self._tools.sources.interrupt()
        for future in self._futures:
            future.cancel()
        pending = set(self._futures)
        while pending:
            # More than once: a session may have been between two statements.
            for running in list(self._sessions):
                if not self.has_committed:
                    running.session.cancel()
            _, pending = wait(pending, timeout=_CANCEL_INTERVAL_S)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._feed.close()
        for running in self._sessions:
            running.session.abandon()

    # ---------------------------------------------------------------- streaming

    def _add_sessions(self, count: int) -> None:
        for number in range(len(self._futures), count):
            future = self._pool.submit(self._run_session, number)
            future.add_done_callback(self._session_ended)
            self._futures.add(future)

    def _run_session(self, number: int) -> None:
        try:
            connection = self._tools.connect.take(label=f"session {number + 1}")
        except ServerError as error:
            if number == 0:
                raise
            # Others took the connections; what has begun can go on without this one.
            _log.warning("going on with %d sessions: %s", number, error.message)
            self._is_full = True
            self._feed.set_sessions(min(number, self._feed.sessions))
            return
        running = LoadSession(
            number,
            CopySession(connection),
            self._feed,
            server_major=self._tools.server_major,
            clock=self._tools.clock,
        )
        self._sessions.append(running)
        running.run()

    def _session_ended(self, future: Future[None]) -> None:
        failure = future.exception() if not future.cancelled() else None
        if failure is not None and not isinstance(failure, Abandoned):
            self._feed.abandon(failure)

    def _stream(self) -> None:
        """Wait for the sessions, reporting progress and adjusting how many there are; raises the first failure."""
        pace = Pace(sessions=self._plan.sessions.initial)
        paced_s, paced_bytes = self._tools.clock(), 0
        pending = self._futures
        while pending:
            _, pending = wait(pending, timeout=_PROGRESS_INTERVAL_S, return_when=FIRST_COMPLETED)
            self._raise_failure()
            self._report_progress()
            self._watch.look(list(self._sessions), bytes_sent=self._bytes_copied())
            now_s = self._tools.clock()
            if (
                self._plan.sessions.is_adaptive
                and pending
                and not self._is_full
                and now_s - paced_s >= _PACE_INTERVAL_S
            ):
                bytes_copied = self._bytes_copied()
                pace = self._keep_pace(pace, rate=(bytes_copied - paced_bytes) / (now_s - paced_s))
                paced_s, paced_bytes = now_s, bytes_copied
                pending = {future for future in self._futures if not future.done()}
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what made the load fail, if it has; a session is done a moment before its callback tells the feed."""
        if self._feed.failure is not None:
            raise self._feed.failure
        for future in self._futures:
            if future.done() and (failure := future.exception()) is not None:
                raise failure

    def _keep_pace(self, pace: Pace, *, rate: float) -> Pace:
        following = next_pace(pace, rate=rate, plan=self._plan.sessions)
        if following.sessions != pace.sessions:
            _log.info("sessions %d -> %d at %.1f MB/s", pace.sessions, following.sessions, rate / 1e6)
            self._feed.set_sessions(following.sessions)
            self._add_sessions(following.sessions)
        return following

    def _bytes_copied(self) -> int:
        return sum(running.totals.bytes_copied for running in self._sessions)

    def _report_progress(self) -> None:
        if self._tools.on_progress is not None:
            elapsed_s = self._tools.clock() - self._began_s
            self._tools.on_progress(
                self._feed.progress(
                    bytes_copied=self._bytes_copied(), size_bytes=self._plan.size_bytes, elapsed_s=elapsed_s
                )
            )

    # ---------------------------------------------------------------- the end

    def _commit(self) -> None:
        """Commit all sessions at once: the last instant in which an error can leave some rows and not others.

        A commit that was sent cannot be called back, so an interrupt waits for the answers.
        """
        commits = [self._pool.submit(running.session.commit) for running in self._sessions]
        waiting = set(commits)
        while waiting:
            with contextlib.suppress(KeyboardInterrupt):
                waiting = wait(waiting).not_done
        self.has_committed = any(running.session.is_committed and running.totals.rows > 0 for running in self._sessions)
        for commit in commits:
            try:
                commit.result()
            except CopyFailed as failure:
                raise self._commit_error(failure) from failure
        for running in self._sessions:
            running.session.close()

    def _commit_error(self, failure: CopyFailed) -> PenstockError:
        report = failure.report
        done = [running for running in self._sessions if running.session.is_committed]
        rows = sum(running.totals.rows for running in done)
        detail = "Nothing was loaded." if not rows else f"{rows} rows of {len(done)} sessions had been committed."
        if failure.is_disconnect:
            detail += " Whether the session that broke has committed is not known."
        return ServerError(
            report.message,
            detail=detail,
            hint="Remove the rows that stayed before loading again." if rows else find_hint(report.sqlstate),
            sqlstate=report.sqlstate,
        )

    def _outcome(self) -> LoadOutcome:
        totals = [running.totals for running in self._sessions]
        return LoadOutcome(
            load_id=self._plan.load_id,
            state="complete",
            rows=sum(total.rows for total in totals),
            rejected=0,
            suppressed=sum(total.suppressed for total in totals),
            bytes_read=self._feed.bytes_read,
            bytes_copied=sum(total.bytes_copied for total in totals),
            seconds=self._tools.clock() - self._began_s,
            busy_seconds=sum(total.busy_s for total in totals),
            sessions=max(1, sum(total.bytes_copied > 0 for total in totals)),
            files=self._feed.outcomes(),
        )
