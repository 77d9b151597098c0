"""--check: everything is parsed as a load would, by the server itself, and nothing is loaded.

Each block is copied into a temporary table like the target, which is emptied at every commit. A record that the server
refuses is reported and the rest of its block tried again, so that every problem is found, up to a limit. Keys, foreign
keys, partition routing and triggers are not on the temporary table and so are not checked; NOT NULL, CHECK and the
types are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock import _native
from penstock.errors import DataError, PenstockError, SourceError
from penstock.files.blocks import make_cutter
from penstock.loading.bisect import (
    FoundRecord,
    MakeCutter,
    find_by_index,
    find_by_server_line,
    knowing,
    make_payload_cutter,
)
from penstock.loading.dialects import refuse_other_dialects
from penstock.loading.explain import explain_failure, shorten, shorten_message
from penstock.loading.feed import Abandoned, BlockFeed, OpenObject, reader_limit
from penstock.loading.objects import open_blocks
from penstock.loading.plan import table_after_creation
from penstock.loading.work import all_objects
from penstock.model.outcome import CheckOutcome, Problem
from penstock.server.copy import CopyFailed, CopySession
from penstock.server.errors import choose_class, find_hint
from penstock.server.scratch import ScratchTables

if TYPE_CHECKING:
    from penstock.loading.tools import LoadTools
    from penstock.model.block import Block, CopySpec
    from penstock.model.plan import LoadPlan

_PROGRESS_INTERVAL_S = 0.1

# More than anybody corrects by hand. Each one costs sending the rest of its block (512 KiB) again.
_PROBLEM_LIMIT = 1000

# Whatever record was being sent has nothing to do with these: the connection, a deadlock or a serialization failure,
# resources, a lock timeout, an operator, the system, a bug.
_ENDING_CLASSES = ("08", "40", "53", "55P", "57", "58", "XX")

OnProblem = Callable[[Problem], None]


class _Enough(Exception):
    """There are more problems than the limit; nothing more is checked."""


def check_load(plan: LoadPlan, tools: LoadTools, *, on_problem: OnProblem | None = None) -> CheckOutcome:
    """Parse every object of a plan and return what is wrong with them; ends early behind 1,000 problems.

    `on_problem` is called from several threads, one at a time. Needs TEMPORARY on the database and SELECT on the
    table. Raises PenstockError where the check itself cannot go on.
    """
    tools.connect.refuse_pooler("check")
    # The check itself tells what cannot be read.
    with suppress(SourceError):
        refuse_other_dialects(all_objects(plan.targets), tools.sources)
    return _Check(plan, tools, on_problem).run()


class _Check:
    def __init__(self, plan: LoadPlan, tools: LoadTools, on_problem: OnProblem | None) -> None:
        self._plan = plan
        self._tools = tools
        self._on_problem = on_problem
        self._problems: list[Problem] = []
        self._problem_count = 0
        self._is_complete = True
        self._sessions: list[CopySession] = []
        self._began_s = tools.clock()
        work = all_objects(plan.targets)
        self._feed = BlockFeed(
            work,
            lambda item: open_blocks(item, tools),
            reader_limit=reader_limit(work, sessions=plan.sessions.initial),
            sessions=plan.sessions.initial,
            on_object_failed=self._object_failed,
            clock=tools.clock,
        )

    def run(self) -> CheckOutcome:
        count = self._plan.sessions.initial
        with ThreadPoolExecutor(max_workers=count, thread_name_prefix="penstock-check") as pool:
            try:
                self._wait({pool.submit(self._run_session, number) for number in range(count)})
            except _Enough:
                self._tools.sources.interrupt()
            except BaseException as exc:
                self._feed.abandon(exc)
                self._tools.sources.interrupt()
                for session in list(self._sessions):
                    session.cancel()
                raise
            finally:
                self._feed.close()
        files = self._feed.outcomes()
        return CheckOutcome(
            rows=sum(file.rows for file in files),
            bytes_read=self._feed.bytes_read,
            seconds=self._tools.clock() - self._began_s,
            problems=tuple(sorted(self._problems, key=lambda problem: (problem.uri, problem.line or 0))),
            problem_count=self._problem_count,
            is_complete=self._is_complete,
        )

    def _wait(self, pending: set[Future[None]]) -> None:
        while pending:
            done, pending = wait(pending, timeout=_PROGRESS_INTERVAL_S, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            if self._feed.failure is not None:
                raise self._feed.failure
            self._report_progress()

    def _report_progress(self) -> None:
        if self._tools.on_progress is not None:
            elapsed_s = self._tools.clock() - self._began_s
            self._tools.on_progress(
                self._feed.progress(bytes_copied=0, size_bytes=self._plan.size_bytes, elapsed_s=elapsed_s)
            )

    def _object_failed(self, opened: OpenObject, error: PenstockError) -> None:
        if self._feed.failure is not None:
            # The check has ended, and with it the wait for a pipe's bytes.
            return
        self._report(
            Problem(
                uri=opened.source.uri,
                line=None,
                column=None,
                value=None,
                message=f"{error.message}: {error.detail}" if error.detail else error.message,
                sqlstate=None,
                hint=error.hint,
            )
        )

    def _report(self, problem: Problem) -> None:
        with self._feed.lock:
            self._problem_count += 1
            if len(self._problems) < _PROBLEM_LIMIT:
                self._problems.append(problem)
                if self._on_problem is not None:
                    self._on_problem(problem)
            else:
                self._is_complete = False
                self._feed.abandon(_Enough())

    # ---------------------------------------------------------------- one session

    def _run_session(self, number: int) -> None:
        with self._tools.connect.connect(label=f"check {number + 1}") as connection:
            scratch = ScratchTables(connection)
            session = CopySession(connection)
            self._sessions.append(session)
            try:
                while (taken := self._feed.take(session=number, prefer=None)) is not None:
                    opened, block = taken
                    assert opened.encoder is not None
                    spec = opened.encoder.spec
                    name = scratch.name_for(table_after_creation(opened.target), spec.columns)
                    self._check_block(session, opened, block, replace(spec, schema="pg_temp", table=name))
            except Abandoned:
                return

    def _check_block(self, session: CopySession, opened: OpenObject, block: Block, spec: CopySpec) -> None:
        """Copy a block, and what is left of it behind each bad record."""
        left: Block | None = block
        while left is not None and left.records and self._feed.failure is None:
            left = self._check_once(session, opened, left, spec)
        self._feed.note_sent(opened, block.records - (left.records if left is not None else 0))

    def _check_once(self, session: CopySession, opened: OpenObject, block: Block, spec: CopySpec) -> Block | None:
        """Copy a block; on a bad record report it and return what stands behind it."""
        encoder = opened.encoder
        assert encoder is not None
        data = b"".join(buffer[start:end] for buffer, start, end in block.segments)

        def cutter() -> _native.RecordCutter:
            return make_cutter(opened.target.dialect, server_major=self._tools.server_major)

        try:
            payload = b"".join(encoder.encode(block))
        except _native.RecordError as error:
            message, index, line = error.args
            found = find_by_index(data, index, knowing(block.line_end, cutter))
            self._report(_problem(opened, block.first_line + line, message=message))
            return _rest(block, data, found, cutter())
        failure = _copy(session, spec, payload)
        if failure is None:
            return None
        failure = _renamed(failure, scratch=spec.table, table=opened.target.table.name)
        if _ends_check(failure):
            raise explain_failure(failure, where=opened.source.uri) from failure
        bad = _locate(block, data, payload, failure=failure, spec=spec, cutter=cutter)
        line = None if bad is None else _last_line(block, data, bad)
        self._report(_problem(opened, line, message=shorten_message(failure.report.message), failure=failure))
        if bad is None:
            # Nobody knows where the rest of the block begins.
            self._is_complete = False
            return None
        return _rest(block, data, bad, cutter())


def _copy(session: CopySession, spec: CopySpec, payload: bytes) -> CopyFailed | None:
    """Copy a payload in a transaction of its own; return why it failed, if it did."""
    try:
        session.begin()
        session.start_copy(spec)
        session.send([payload])
        session.finish_copy()
        session.commit()
    except CopyFailed as failure:
        return failure if failure.is_disconnect else _roll_back(session) or failure
    return None


def _roll_back(session: CopySession) -> CopyFailed | None:
    """Roll back; return why that failed, if it did, which weighs more than what it was for."""
    try:
        session.roll_back()
    except CopyFailed as failure:
        return failure
    return None


def _renamed(failure: CopyFailed, *, scratch: str, table: str) -> CopyFailed:
    """Return the failure with the target's name in place of the temporary table's."""
    whole_name = re.compile(rf"\b{re.escape(scratch)}\b")

    def rename(text: str) -> str:
        return whole_name.sub(lambda _: table, text)

    detail = failure.report.detail
    report = replace(
        failure.report,
        message=rename(failure.report.message),
        detail=rename(detail) if detail is not None else None,
    )
    return CopyFailed(report, failure.place, is_disconnect=failure.is_disconnect)


def _ends_check(failure: CopyFailed) -> bool:
    """Whether the failure says nothing of a record; with a line any other does, even what a function raised."""
    sqlstate = failure.report.sqlstate
    if failure.is_disconnect or sqlstate is None or sqlstate.startswith(_ENDING_CLASSES):
        return True
    return failure.place.line is None and choose_class(sqlstate) is not DataError


def _locate(
    block: Block,
    data: bytes,
    payload: bytes,
    *,
    failure: CopyFailed,
    spec: CopySpec,
    cutter: MakeCutter,
) -> FoundRecord | None:
    """Return the record of the block that a COPY of its payload complained of."""
    if failure.place.line is None:
        return None
    make_sent = cutter if payload == data else partial(make_payload_cutter, spec)
    sent = find_by_server_line(payload, failure.place.line, make_sent)
    return find_by_index(data, sent.index, knowing(block.line_end, cutter))


def _rest(block: Block, data: bytes, found: FoundRecord, cutter: _native.RecordCutter) -> Block | None:
    """Return the block's records behind the bad one."""
    rest = data[found.end :]
    if not rest:
        return None
    passed_lines = found.lines_before + found.lines
    cut = cutter.feed(rest)
    return replace(
        block,
        segments=((rest, 0, len(rest)),),
        start=block.start + found.end,
        first_line=block.first_line + passed_lines,
        lines=block.lines - passed_lines,
        records=block.records - found.index - 1,
        server_lines=cut.server_lines,
        # The last record's are not in the cut where its line end is missing; such a block is written field by field.
        stray_backslashes=cut.stray_backslashes,
    )


def _last_line(block: Block, data: bytes, found: FoundRecord) -> int:
    """Return the line of the object on which a record ends, which is the one that COPY names."""
    lines = found.lines
    if not lines:
        # The record is the object's last one and has no line end.
        lines = 1 + data.count(b"\r" if block.line_end == "cr" else b"\n", found.start, found.end)
    return block.first_line + found.lines_before + lines - 1


def _problem(opened: OpenObject, line: int | None, *, message: str, failure: CopyFailed | None = None) -> Problem:
    place = failure.place if failure else None
    report = failure.report if failure else None
    return Problem(
        uri=opened.source.uri,
        line=line,
        column=(place.column if place else None) or (report.column if report else None),
        value=shorten(place.value) if place and place.value is not None else None,
        message=message,
        sqlstate=report.sqlstate if report else None,
        hint=(report.hint or find_hint(report.sqlstate)) if report else None,
    )
