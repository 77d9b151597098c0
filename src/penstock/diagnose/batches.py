"""Measures which applications and statements wait for commits, and predicts how long larger batches would take.

A transaction of n rows takes n times the time of a row, plus the time of one commit, which flushes its WAL. The number
of commits gives the time of a whole transaction. The time of its rows is the time in which the backend does not wait
for the commit. This time is computed from the samples, and from the backend's processor time if the server is on this
machine.

On a machine with few processors the samples show too many waits, because the sampler gets a processor when the workload
sleeps. So if a probe has measured the time of a small commit, the probe's time is used instead. The probe's time is not
used if a commit takes most of the whole transaction, because the remaining time would then be mainly the probe's error.

The prediction has two errors. The backend's own work for a commit, apart from the wait, is counted as time of the rows.
So if commits of one row each were measured, larger batches are in fact faster than predicted. Long transactions also
wait for flushes of WAL before their commit, and larger batches do not avoid these flushes. So if thousands of rows per
commit were measured, smaller batches are in fact faster than predicted.

Transactions that only read are no part of it. A sample does not show whether a transaction without a transaction id
will write. So if the server counts more than a few that did not, only sessions with an id count, and the time in which
a transaction reads before it writes is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.core.slotted import slotted
from penstock.core.units import MIB
from penstock.watch.holders import read_int
from penstock.watch.rates import Rates, RatesMeter
from penstock.watch.waits import (
    ActivityPart,
    CommitFinder,
    Moment,
    Shares,
    add_statement,
    is_active,
    is_working,
    name_application,
    weight_of,
)

if TYPE_CHECKING:
    from penstock.watch.values import Sample, SessionSample

_VIEW = "pg_stat_statements"

# The number of a statement's calls, of the rows that it returned or changed, of the blocks of temporary files that it
# wrote, and the milliseconds that it took, and that compiling it took (PostgreSQL 15 and later).
_Counts: TypeAlias = tuple[int, int, int, int, int]
_OF_JIT = ("jit_generation_time", "jit_inlining_time", "jit_optimization_time", "jit_emission_time")

# This value stands in place of an application's name if several applications run the statement.
_SEVERAL = object()


class StatementMeter:
    """Reads samples one by one. It keeps the calls and rows of each statement, and which application runs it."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], _Counts] = {}
        self._last: dict[tuple[object, ...], _Counts] = {}
        self._is_read = False
        self._users: dict[int, object] = {}

    def see(self, sample: Sample) -> None:
        """Add a sample's reading of pg_stat_statements, if it has one."""
        rows = sample.counters.get(_VIEW)
        for row in rows or ():
            columns = ("calls", "rows", "temp_blks_written", "total_exec_time")
            calls, returned, blocks, taken_ms = (read_int(row, column) for column in columns)
            counts = calls, returned, blocks, taken_ms, sum(read_int(row, column) for column in _OF_JIT)
            if row.get("queryid") is not None:
                key = row.get("queryid"), row.get("userid"), row.get("dbid"), row.get("toplevel")
                # The first reading has all rows, later readings only those that changed. So a row that is first seen
                # in a later reading is new, and its counters began at zero.
                self._first.setdefault(key, (0, 0, 0, 0, 0) if self._is_read else counts)
                self._last[key] = counts
        self._is_read = self._is_read or rows is not None

    def see_session(self, session: SessionSample, application: str) -> None:
        """Record which application runs a session's statement."""
        if session.query_id is not None:
            known = self._users.setdefault(session.query_id, application)
            if known != application:
                self._users[session.query_id] = _SEVERAL

    def rise(self, query_id: int | None) -> _Counts | None:
        """Return how much a statement's counters have risen, summed over all roles; None if it was not called."""
        found = [
            [now - before for now, before in zip(last, self._first[key], strict=True)]
            for key, last in self._last.items()
            if key[0] == query_id
        ]
        calls, rows, blocks, ms, jit_ms = (sum(each) for each in zip(*found, strict=True)) if found else (0,) * 5
        return (calls, rows, blocks, ms, jit_ms) if calls > 0 else None

    def count(self, application: str, query_ids: Iterable[int | None]) -> tuple[int, int] | None:
        """Return the sums of calls and rows of these statements.

        Returns None if another application also runs one of them, or if one has no calls or changed no rows.
        """
        calls = rows = 0
        for query_id in query_ids:
            if query_id is None or self._users.get(query_id) != application:
                return None
            own = self.rise(query_id)
            if own is None or own[1] <= 0:
                return None
            calls, rows = calls + own[0], rows + own[1]
        return (calls, rows) if calls else None


RowsBy = Literal["server", "WAL", "pg_stat_statements"]

# The batch sizes for which times are predicted.
BATCHES = (1, 10, 100, 1_000, 10_000)

# A batch size is large enough if twice as many rows in a batch save less than this part of the time.
_WORTH = 0.1

# If each commit has this much WAL, sessions wait while the WAL is written, and larger batches do not shorten that wait.
# Measured on 18.4, rows a second by one session: 164,000 at 0.3 MB a commit, 236,000 at 1.1 MB, 220,000 at 14 MB.
BULK_BYTES = MIB

# Up to this many transactions that only read, for each that writes, take too little time to matter.
_FEW_READS = 0.1

# Fewer samples of active sessions than this are not enough to conclude anything.
LEAST_SAMPLES = 20

# A probe's commit time is used only if the whole transaction takes more than this many times the probe's time. The
# commit times of the probe and of the workload beside it differ by about a fifth.
_CLEARLY_MORE = 1.5


@slotted
class Committer:
    """An application that writes. A field is None if there are too few samples to know it."""

    application: str
    samples: int
    # The average number of the application's sessions in transactions, without those that may only read if these are
    # many.
    sessions: float
    # The share of these sessions' time in which they wait for commits.
    waiting: float
    # The statements that wait for commits.
    statements: tuple[ActivityPart, ...]
    # If commits are not counted by statement, the server's commits are divided among the applications, in proportion to
    # the time that each waits for commits. None if sessions are hidden.
    commits_per_s: float | None
    rows_per_commit: float | None
    # How rows are counted. All rows of the server are counted if no other application writes. Otherwise the rows of the
    # statements in which this application waits for commits are counted, if they are known.
    rows_by: RowsBy | None
    # The time that a row takes.
    row_s: float | None
    # The time that a commit takes.
    commit_s: float | None
    # How many rows have BULK_BYTES of WAL.
    bulk_rows: int | None

    def predict_s(self, rows: int, rows_per_commit: int) -> float | None:
        """Return the seconds that one session takes for the rows in these batches, or None if that is not known."""
        if self.row_s is None or self.commit_s is None:
            return None
        return rows * self.row_s + math.ceil(rows / rows_per_commit) * self.commit_s

    @property
    def enough_rows(self) -> int | None:
        """Return the smallest batch for which a batch of twice the size saves less than a tenth of the time."""
        if not self.row_s or self.commit_s is None:
            return None
        # A batch of twice the size saves half a commit for every n rows. The bend is at the n for which commit / 2
        # equals _WORTH * (n * row + commit).
        bend = math.ceil(round(self.commit_s / self.row_s * (1 / (2 * _WORTH) - 1), 3))
        return max(1, bend if self.bulk_rows is None else min(bend, self.bulk_rows))


@slotted
class CommitReport:
    """The commits in a run of samples."""

    elapsed_s: float
    samples: int
    rates: Rates
    # Applications that wait longest for commits come first.
    committers: tuple[Committer, ...]
    # Whether there are sessions of other roles whose activity this role may not see.
    hides_sessions: bool


class CommitMeter:
    """Reads samples one by one, and keeps the time that each application spent in transactions."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._finder = CommitFinder(settings)
        self._statements = StatementMeter()
        self._seconds: dict[str, _Seconds] = {}
        self._elapsed_s = 0.0
        self._samples = 0
        self._hides_sessions = False

    def see(self, sample: Sample) -> list[tuple[str, Moment]]:
        """Add a sample. Return the waits that are now known to be for commits, with the codes of their diagnoses."""
        weight_s = weight_of(sample)
        self._elapsed_s += weight_s
        self._statements.see(sample)
        for session in sample.sessions:
            self._samples += is_active(session)
            self._hides_sessions = self._hides_sessions or is_hidden(session)
            if is_working(session):
                application = name_application(session)
                self._seconds.setdefault(application, _Seconds()).add(session, weight_s)
                self._statements.see_session(session, application)
        return self._count_waits(self._finder.see(sample))

    def end(self) -> list[tuple[str, Moment]]:
        """Return the remaining waits for commits. Call it after the last sample."""
        return self._count_waits(self._finder.end())

    def _count_waits(self, found: list[tuple[str, Moment]]) -> list[tuple[str, Moment]]:
        for _, moment in found:
            self._seconds[name_application(moment.session)].add_wait(moment)
        return found

    def result(self, rates: Rates, *, probed_s: float | None = None) -> CommitReport:
        """Return which applications wait for commits; `probed_s` is the measured time of a small commit, or None."""
        few_read = (rates.commits_per_s or 0.0) <= (1 + _FEW_READS) * (rates.writes_per_s or 0.0)
        waited_s = sum(spent.waiting_s for spent in self._seconds.values())
        # The server's count has the commits of all sessions. If some sessions are hidden, their commits would be
        # attributed to the visible applications.
        is_known = rates.writes_per_s is not None and not self._hides_sessions
        commits = rates.writes_per_s * self._elapsed_s if is_known and rates.writes_per_s is not None else None
        committers = []
        for name, spent in sorted(self._seconds.items(), key=lambda item: -item[1].waiting_s):
            if spent.waiting_s > 0:
                own = None if commits is None else commits * spent.waiting_s / waited_s
                counted = self._count(name, spent, rates, commits=own)
                time = spent.whole if few_read else spent.in_writes
                found = _describe(name, spent, time, rates, counted, elapsed_s=self._elapsed_s, probed_s=probed_s)
                committers.append(found)
        return CommitReport(
            elapsed_s=self._elapsed_s,
            samples=self._samples,
            rates=rates,
            committers=tuple(committers),
            hides_sessions=self._hides_sessions,
        )

    def _count(self, name: str, spent: _Seconds, rates: Rates, *, commits: float | None) -> _Counted:
        """Return how many commits an application made, and how many rows per commit.

        If no other application writes, both are from the server's counters. Otherwise they are from
        pg_stat_statements, for the statements with which the application was seen waiting for a commit.
        """
        if commits is None:
            return _Counted()
        others = [each for each, other in self._seconds.items() if other.writes and each != name]
        if not others:
            by: RowsBy = "server" if rates.is_exact else "WAL"
            rows = rates.rows_per_commit
            return _Counted(commits=commits, rows_per_commit=rows, rows_by=None if rows is None else by)
        found = self._statements.count(name, spent.query_ids)
        if found is None:
            return _Counted(commits=commits)
        calls, changed = found
        return _Counted(commits=calls, rows_per_commit=changed / calls, rows_by="pg_stat_statements")


def report_commits(
    samples: Iterable[Sample], *, settings: Mapping[str, str] | None = None, probed_s: float | None = None
) -> CommitReport:
    """Return which applications wait for commits in a run of samples; `settings` are the recording's."""
    meter, rates = CommitMeter(settings or {}), RatesMeter()
    for sample in samples:
        meter.see(sample)
        rates.see(sample)
    meter.end()
    return meter.result(rates.result(), probed_s=probed_s)


def is_hidden(session: SessionSample) -> bool:
    """Return whether this process's role may not see what a session does. Processes without a database do not count."""
    return session.backend_type is None and session.database is not None


@slotted
class _Counted:
    """The number of an application's commits within the samples, and of rows per commit. None means not known."""

    commits: float | None = None
    rows_per_commit: float | None = None
    rows_by: RowsBy | None = None


@dataclass(slots=True)
class _Time:
    """The sampled time of sessions in transactions."""

    samples: int = 0
    # The whole time in transactions.
    working_s: float = 0.0
    # The part without a wait.
    running_s: float = 0.0
    # The sum over all backends of the time from the first sample to the last.
    seen_s: float = 0.0
    # The processor time of the backends in this time.
    on_cpu_s: float = 0.0

    def __add__(self, other: _Time) -> _Time:
        return _Time(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(slots=True)
class _Seconds:
    """The sampled time of an application's sessions in transactions."""

    # The time of transactions that have an id, and that of transactions that have none yet, or only read.
    in_writes: _Time = field(default_factory=_Time)
    before_writes: _Time = field(default_factory=_Time)
    # The part of `in_writes` that waits for commits.
    waiting_s: float = 0.0
    last: dict[int, float] = field(default_factory=dict)
    statements: Shares = field(default_factory=Shares)
    query_ids: set[int | None] = field(default_factory=set)
    # Whether one of the transactions had a transaction id, or waited for its commit.
    writes: bool = False

    @property
    def whole(self) -> _Time:
        return self.in_writes + self.before_writes

    def add(self, session: SessionSample, weight_s: float) -> None:
        self.writes = self.writes or session.xid_age is not None
        time = self.before_writes if session.xid_age is None else self.in_writes
        time.samples += 1
        time.working_s += weight_s
        if is_active(session) and session.wait_event_type is None:
            time.running_s += weight_s
        if session.cpu_s is not None:
            before_s = self.last.get(session.pid)
            if before_s is not None and session.cpu_s >= before_s:
                time.seen_s += weight_s
                time.on_cpu_s += session.cpu_s - before_s
            self.last[session.pid] = session.cpu_s

    def add_wait(self, moment: Moment) -> None:
        if moment.session.xid_age is None:
            self.before_writes.samples -= 1
            self.before_writes.working_s -= moment.weight_s
            self.in_writes.samples += 1
            self.in_writes.working_s += moment.weight_s
        self.waiting_s += moment.weight_s
        self.writes = True
        self.query_ids.add(moment.session.query_id)
        add_statement(self.statements, moment.session, moment.weight_s)

    def split(self, time: _Time, commits: float, *, probed_s: float | None) -> tuple[float, float]:
        """Return the seconds of a transaction's rows and of its commit. `time` is that of all transactions."""
        whole_s = time.working_s / commits
        if probed_s is not None and whole_s > _CLEARLY_MORE * probed_s:
            return whole_s - probed_s, probed_s
        rows = 1 - self.waiting_s / time.working_s
        whole = self.whole
        if whole.seen_s:
            # Other waits, and the time in which a transaction waits for its client, are taken from the samples. The
            # processor time since a session's last sample is of all its transactions since.
            rows = max(rows, rows - whole.running_s / whole.working_s + min(1.0, whole.on_cpu_s / whole.seen_s))
        rows_s = min(1.0, rows) * whole_s
        return rows_s, whole_s - rows_s


def _describe(
    name: str,
    spent: _Seconds,
    time: _Time,
    rates: Rates,
    counted: _Counted,
    *,
    elapsed_s: float,
    probed_s: float | None,
) -> Committer:
    row_s = commit_s = None
    commits = counted.commits
    if commits and time.samples >= LEAST_SAMPLES:
        rows_s, commit_s = spent.split(time, commits, probed_s=probed_s)
        row_s = rows_s / counted.rows_per_commit if counted.rows_per_commit else None
    return Committer(
        application=name,
        samples=time.samples,
        sessions=time.working_s / elapsed_s,
        waiting=spent.waiting_s / time.working_s,
        statements=spent.statements.parts(elapsed_s),
        commits_per_s=None if commits is None else commits / elapsed_s,
        rows_per_commit=counted.rows_per_commit,
        rows_by=counted.rows_by,
        row_s=row_s,
        commit_s=commit_s,
        bulk_rows=_count_bulk_rows(rates),
    )


def _count_bulk_rows(rates: Rates) -> int | None:
    """Return how many rows have BULK_BYTES of WAL on this server, None if that is not known."""
    rows_per_s = (rates.writes_per_s or 0.0) * (rates.rows_per_commit or 0.0)
    return math.ceil(BULK_BYTES * rows_per_s / rates.wal_bytes_per_s) if rows_per_s and rates.wal_bytes_per_s else None
