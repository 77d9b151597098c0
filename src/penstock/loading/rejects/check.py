"""Runs --check: the server parses everything as in a load, but nothing is loaded.

Each block is copied into a temporary table like the target, as in a load that rejects records, and rolled back. Types,
NOT NULL and CHECK constraints are checked. Keys, foreign keys, partition routing, triggers and row security are not,
because the temporary table lacks them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from penstock.core.connect.errors import hint_for
from penstock.core.errors import FileLocation, PenstockError, SourceError
from penstock.core.host.process import Interrupts, holding_interrupts
from penstock.core.values.table import TableName
from penstock.ledger.rejects import Reject
from penstock.loading.context import LoadTools
from penstock.loading.copy.copy import CopyFailed, CopySession
from penstock.loading.formats.probe.content import OtherContent
from penstock.loading.plan.dialects import refuse_other_dialects
from penstock.loading.read.feed import Abandoned, BlockFeed, FeedPlan, OpenObject, reader_limit
from penstock.loading.read.format_check import FormatCheck
from penstock.loading.read.objects import open_blocks
from penstock.loading.read.value_check import ValueCheck
from penstock.loading.rejects.explain import explain_failure
from penstock.loading.rejects.pieces import Piece, make_origin
from penstock.loading.rejects.sorter import RejectSorter, part_unwritable
from penstock.loading.rejects.sorting import ScratchTables
from penstock.loading.values.objects import Block, LineEnd, all_objects
from penstock.loading.values.outcome import BadRecord, CheckOutcome
from penstock.loading.values.plan import LoadPlan, table_after_creation

_PROGRESS_INTERVAL_S = 0.1

OnProblem = Callable[[BadRecord], None]


class _TooManyProblems(Exception):
    """The check has found more problems than the limit, and ends."""


def check_load(plan: LoadPlan, tools: LoadTools, *, on_problem: OnProblem | None = None) -> CheckOutcome:
    """Have the server parse every object of a plan, as --check does, and return the bad records. Nothing is loaded.

    The check ends after 1,000 bad records. `on_problem` is called with each of them, from several threads, one at a
    time. Needs TEMPORARY on the database and SELECT on the tables. Raises PenstockError if the check cannot continue.
    """
    tools.connect.refuse_unwritable("check")
    for target in plan.targets:
        if target.refusal is not None:
            raise target.refusal
    try:
        works = all_objects(plan.targets)
        refuse_other_dialects(works, tools.sources, tools.warnings, depth="dialect", targets=plan.targets)
    except SourceError as error:
        # Ignore an object that cannot be read, because the check itself reports it.
        if isinstance(error, OtherContent):
            raise
    return _LoadCheck(plan, tools, on_problem).run()


class _LoadCheck:
    def __init__(self, plan: LoadPlan, tools: LoadTools, on_problem: OnProblem | None) -> None:
        # Send text, because problems are reported for single records, which are cut out of the data that was sent.
        tools = replace(tools, sends_text=True)
        self._plan = plan
        self._tools = tools
        self._on_problem = on_problem
        self._problems: list[BadRecord] = []
        self._problem_count = 0
        self._is_complete = True
        self._sessions: list[CopySession] = []
        self._began_s = tools.clock()
        self._format_check = format_check = FormatCheck(tools.warnings, plan.notices)
        self._value_check = ValueCheck(tools.warnings, tools.connect.date_order, stores=False)
        work = all_objects(plan.targets)
        self._feed = BlockFeed(
            work,
            lambda item: open_blocks(item, tools, format_check=format_check),
            FeedPlan(
                reader_limit=reader_limit(len(work), sessions=plan.sessions.initial), sessions=plan.sessions.initial
            ),
            on_object_failed=self._object_failed,
            clock=tools.clock,
        )

    def run(self) -> CheckOutcome:
        count = self._plan.sessions.initial
        for item in self._plan.unreadable:
            self._report(BadRecord(uri=item.uri, message=item.reason))
        with (
            holding_interrupts() as interrupts,
            ThreadPoolExecutor(max_workers=count, thread_name_prefix="penstock-check") as pool,
        ):
            try:
                self._wait({pool.submit(self._run_session, number) for number in range(count)}, interrupts)
            except _TooManyProblems:
                self._tools.sources.interrupt()
            except BaseException as exc:
                self._feed.abandon(exc)
                self._tools.sources.interrupt()
                for session in list(self._sessions):
                    session.cancel()
                raise
            finally:
                self._feed.close()
                self._format_check.conclude()
                self._value_check.conclude()
        files = self._feed.outcomes()
        return CheckOutcome(
            rows=sum(file.rows for file in files),
            bytes_read=self._feed.bytes_read,
            seconds=self._tools.clock() - self._began_s,
            problems=tuple(sorted(self._problems, key=lambda problem: (problem.uri, problem.line or 0))),
            problem_count=self._problem_count,
            is_complete=self._is_complete,
        )

    def _wait(self, pending: set[Future[None]], interrupts: Interrupts) -> None:
        while pending:
            done, pending = wait(pending, timeout=_PROGRESS_INTERVAL_S, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            if self._feed.failure is not None:
                raise self._feed.failure
            self._report_progress()
            interrupts.deliver()

    def _report_progress(self) -> None:
        if self._tools.on_progress is not None:
            elapsed_s = self._tools.clock() - self._began_s
            self._tools.on_progress(
                self._feed.progress(bytes_copied=0, size_bytes=self._plan.size_bytes, elapsed_s=elapsed_s)
            )

    def _object_failed(self, opened: OpenObject, error: PenstockError) -> None:
        if self._feed.failure is not None:
            # Ignore the error, because the check has ended, and the error comes from interrupting the read of a pipe.
            return
        message = f"{error.message}: {error.detail}" if error.detail else error.message
        self._report(BadRecord(uri=opened.source.uri, message=message, hint=error.hint))

    def _report(self, problem: BadRecord) -> None:
        with self._feed.lock:
            self._problem_count += 1
            if len(self._problems) < self._plan.tuning.most_problems:
                self._problems.append(problem)
                if self._on_problem is not None:
                    self._on_problem(problem)
            else:
                self._is_complete = False
                self._feed.abandon(_TooManyProblems())

    # ---------------------------------------------------------------- one session

    def _run_session(self, number: int) -> None:
        with self._tools.connect.connect(label=f"check {number + 1}") as connection:
            scratch = ScratchTables(connection)
            session = CopySession(connection, is_protected=True)
            self._sessions.append(session)
            sorter = RejectSorter(session)
            try:
                while (taken := self._feed.take(session=number, prefer=None)) is not None:
                    opened, block = taken
                    self._value_check.look(block, opened.work, opened.encoder)
                    columns = opened.encoder.spec.columns
                    facts = table_after_creation(opened.target)
                    # A partition that the load makes does not exist: its rows are checked as those of the parent.
                    like = facts if facts.parent is None else replace(facts, name=facts.parent)
                    name = scratch.name_for(like, columns)
                    self._check_block(session, sorter, opened, block, TableName(schema="pg_temp", name=name))
            except Abandoned:
                return

    def _check_block(
        self, session: CopySession, sorter: RejectSorter, opened: OpenObject, block: Block, scratch: TableName
    ) -> None:
        """Copy records to a temporary table in their own transaction, and report those that are rejected."""
        # Errors must name the target, not the temporary table.
        form = replace(opened.form, table=scratch, working_names=((scratch.name, opened.target.table.name),))
        origin = make_origin(
            form, number=opened.work.number, uri=opened.source.uri, server_major=self._tools.server_major
        )
        pieces, unwritable = part_unwritable(Piece(origin=origin, block=block))
        try:
            session.begin()
            refused = sorter.send(pieces).rejects
            session.roll_back()
        except CopyFailed as failure:
            where = failure.location or FileLocation(file=opened.source.uri)
            raise explain_failure(failure, where=where) from failure
        # Report the same line as the error of a load: the line on which a record begins, or, for an error of COPY, the
        # line on which it ends.
        found = [(reject, reject.line) for reject in unwritable]
        found += [(reject, _last_line(reject, block.line_end)) for reject in refused]
        for reject, line in sorted(found, key=lambda each: each[0].start):
            if self._feed.failure is not None:
                return
            self._report(_problem(opened, reject, line))
        self._feed.note_sent(opened, block.records)


def _last_line(reject: Reject, line_end: LineEnd) -> int:
    mark = b"\r" if line_end == "cr" else b"\n"
    return reject.line + reject.raw.removesuffix(mark).count(mark)


def _problem(opened: OpenObject, reject: Reject, line: int) -> BadRecord:
    reason = reject.reason
    return BadRecord(
        uri=opened.source.uri,
        line=line,
        column=reason.column,
        message=reason.message,
        sqlstate=reason.sqlstate,
        hint=hint_for(reason.sqlstate),
    )
