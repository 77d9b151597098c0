"""Computes rates from samples: commits, rows, rollbacks and WAL per second, and the progress of commands.

A procedure that commits updates the statistics views only when it ends, with all its commits at once. The next
transaction id and the WAL position advance while it runs. They are not exact counts of commits: subtransactions and
rolled-back transactions also take ids, and commits that write nothing take none. So the counters of the views are used,
but only after a procedure has updated them. If a procedure was running before the first sample, its commits count only
up to the number of ids that were taken since then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.slotted import slotted

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from penstock.watch.values import Sample, SessionSample

# The columns of pg_stat_database that are used.
_COUNTED = ("xact_commit", "xact_rollback", "tup_inserted", "tup_updated", "tup_deleted")

# Measured on 18.4: an insert into a table of two integers with a primary key writes 130 bytes of WAL, a commit 40.
_WAL_BYTES_PER_ROW = 130
_WAL_BYTES_PER_COMMIT = 40

# How late counters may be. Sessions report them at most once a second, and the collector of PostgreSQL 14 adds half a
# second.
_DELAY_S = 2.0

# A procedure has updated the counters if they show more new commits and rows than this part of the new transaction ids.
_LEAST_ARRIVED = 0.05

# The age of a statement and the age of its transaction count as equal if they differ by less than this.
_SAME_TIME_S = 0.0005


class Increase:
    """The increase of a counter since its first reading. After a reset, the counter counts from 0 again."""

    def __init__(self) -> None:
        self.total = 0
        self._before: int | None = None

    def see(self, value: object) -> None:
        """Take a reading. Anything but an integer is ignored."""
        if isinstance(value, int):
            if self._before is not None:
                self.total += value - self._before if value >= self._before else value
            self._before = value


class DatabaseIncrease:
    """The increase of a column of pg_stat_database, summed over the databases. Each of them may be dropped or reset."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._databases: dict[object, Increase] = {}
        self._is_read = False

    def see(self, sample: Sample) -> None:
        """Add a sample's reading, if it has one."""
        rows = sample.counters.get("pg_stat_database")
        for row in rows or ():
            name = row.get("datname")
            if name not in self._databases:
                self._databases[name] = Increase()
                # The counters of a database that was created after the first reading began at 0.
                if self._is_read:
                    self._databases[name].see(0)
            self._databases[name].see(row.get(self._column))
        self._is_read = self._is_read or rows is not None

    @property
    def total(self) -> int:
        """Return the sum of the increases."""
        return sum(each.total for each in self._databases.values())


@slotted
class Rates:
    """Rates per second. A rate is None if it is not known."""

    elapsed_s: float = 0.0
    commits_per_s: float | None = None
    # Counts only commits of transactions that wrote, because only these commits flush the WAL.
    writes_per_s: float | None = None
    rollbacks_per_s: float | None = None
    wal_bytes_per_s: float | None = None
    # The average number of rows of commits that wrote.
    rows_per_commit: float | None = None
    # True if the server counted the rows, False if they are estimated from the WAL.
    is_exact: bool = False


class _Point(NamedTuple):
    """A reading of pg_stat_database."""

    at_s: float
    xid: int | None
    wal_bytes: int | None
    own_commits: int
    # The number of commits since the first reading. The next two fields count from the first reading too.
    commits: int = 0
    rollbacks: int = 0
    rows: int = 0
    # Whether the view had rows in this reading.
    is_read: bool = False


@slotted
class _Added:
    """What was added between two readings, without the sampler's own commits."""

    elapsed_s: float
    xids: int | None
    wal_bytes: int | None
    commits: int | None
    rollbacks: int
    rows: int

    @property
    def writes(self) -> int:
        """Return the most commits that may have written. Each such commit took a transaction id and changed a row."""
        return min(self.commits or 0, self.xids or 0, self.rows)


class RatesMeter:
    """Reads samples one by one. It keeps a point for each reading of the counters, once a second."""

    def __init__(self) -> None:
        self._points: list[_Point] = []
        self._ends: list[_Point] = []
        self._before: dict[object, CounterRow] | None = None
        self._added: Counter[str] = Counter()
        self._inside_s: float | None = None
        self._sees_ages = False

    def see(self, sample: Sample) -> None:
        """Add a sample."""
        now = _Point(sample.at_s, sample.progress.next_xid, sample.progress.wal_bytes, sample.own_commits)
        self._ends[1:] = [now]
        if any(map(_commits_inside, sample.sessions)):
            self._inside_s = sample.at_s
        self._sees_ages = self._sees_ages or any(session.transaction_s is not None for session in sample.sessions)
        rows = sample.counters.get("pg_stat_database")
        if rows is not None:
            self._count(rows)
            commits, rollbacks = self._added["xact_commit"], self._added["xact_rollback"]
            changed = self._added["tup_inserted"] + self._added["tup_updated"] + self._added["tup_deleted"]
            self._points.append(now._replace(commits=commits, rollbacks=rollbacks, rows=changed, is_read=bool(rows)))

    def _count(self, rows: Sequence[CounterRow]) -> None:
        """Add the increase of each counter since the last reading. A crash may have reset the counters in between."""
        if self._before is not None:
            for row in rows:
                before = self._before.get(row.get("datname"), {})
                for name in _COUNTED if row != before else ():
                    self._added[name] += _rise(before, row, name)
        self._before = {row.get("datname"): row for row in rows}

    def result(self) -> Rates:
        """Return the rates between the first and the last reading. Rates over less than two seconds are inexact."""
        points = self._points if len(self._points) > 1 else self._ends
        if not points or points[-1].at_s <= points[0].at_s:
            return Rates()
        added = _add(points[0], points[-1])
        commits, writes = self._count_commits(points, added)
        wrote = added.xids if writes is None else writes
        rows = added.rows / writes if writes and added.rows else None
        if writes is None and added.xids and added.wal_bytes is not None:
            rows = max(1.0, (added.wal_bytes / added.xids - _WAL_BYTES_PER_COMMIT) / _WAL_BYTES_PER_ROW)
        return Rates(
            elapsed_s=added.elapsed_s,
            commits_per_s=None if commits is None else commits / added.elapsed_s,
            writes_per_s=None if wrote is None else wrote / added.elapsed_s,
            rollbacks_per_s=None if added.commits is None else added.rollbacks / added.elapsed_s,
            wal_bytes_per_s=None if added.wal_bytes is None else added.wal_bytes / added.elapsed_s,
            rows_per_commit=rows,
            is_exact=writes is not None and rows is not None,
        )

    def _count_commits(self, points: Sequence[_Point], added: _Added) -> tuple[float | None, float | None]:
        """Return the number of commits, and the number of commits that wrote.

        A number is None if the server has not counted it completely.
        """
        commits, xids = added.commits, added.xids
        if commits is None or xids is None:
            return (xids, None) if commits is None else (commits, commits)
        if self._inside_s is None:
            return (xids, None) if commits == 0 and not self._sees_transactions() else (commits, added.writes)
        read_only = _count_read_only(points)
        if not _has_counted(points, self._inside_s, xids):
            return xids + read_only, None
        return min(commits, xids + read_only), commits - read_only

    def _sees_transactions(self) -> bool:
        """Return whether the samples can be trusted to show commits.

        At least one session's transaction must have a visible age. Otherwise a procedure that commits would not be
        noticed. The samples must also span _DELAY_S, because the server has counted the first commits only after this
        time.
        """
        return self._sees_ages and self._ends[-1].at_s - self._ends[0].at_s >= _DELAY_S


def measure_rates(samples: Iterable[Sample]) -> Rates:
    """Return the rates of a run of samples."""
    meter = RatesMeter()
    for sample in samples:
        meter.see(sample)
    return meter.result()


def _commits_inside(session: SessionSample) -> bool:
    """Return whether a statement has committed while it runs. If so, its transaction is younger than the statement."""
    if session.state != "active" or session.query_s is None or session.transaction_s is None:
        return False
    return session.query_s - session.transaction_s > _SAME_TIME_S


def _has_counted(points: Sequence[_Point], seen_s: float, xids: int) -> bool:
    """Return whether a procedure that a sample last showed at `seen_s` has updated the counters."""
    before = max((number for number, point in enumerate(points) if point.at_s < seen_s), default=len(points) - 1)
    arrived = _add(points[before], points[-1])
    is_much = (arrived.commits or 0) + arrived.rows > _LEAST_ARRIVED * xids
    return points[-1].at_s >= seen_s + _DELAY_S or (points[-1].at_s > seen_s and is_much)


def _count_read_only(points: Sequence[_Point]) -> float:
    """Return how many commits wrote nothing.

    The median rate is used, because a procedure updates the counters within one second, which does not change the
    median.
    """
    elapsed_s = points[-1].at_s - points[0].at_s
    pieces = min(9, len(points) - 1, int(elapsed_s / _DELAY_S))
    edges = [number * (len(points) - 1) // pieces for number in range(pieces + 1)] if pieces > 1 else []
    found = [_add(points[before], points[after]) for before, after in pairwise(edges)]
    rates = [((each.commits or 0) - each.writes) / each.elapsed_s for each in found]
    return median_low(rates) * elapsed_s if rates else 0.0


def _add(first: _Point, last: _Point) -> _Added:
    """Return what was added from one reading to a later one."""
    own = last.own_commits - first.own_commits
    return _Added(
        elapsed_s=last.at_s - first.at_s,
        xids=_subtract(last.xid, first.xid),
        wal_bytes=_subtract(last.wal_bytes, first.wal_bytes),
        commits=max(0, last.commits - first.commits - own) if first.is_read and last.is_read else None,
        rollbacks=last.rollbacks - first.rollbacks,
        rows=last.rows - first.rows,
    )


def _rise(before: CounterRow, after: CounterRow, name: str) -> int:
    """Return the increase of a counter, or its whole value if it was reset or its database was created in between."""
    then, now = before.get(name), after.get(name)
    if not isinstance(now, int):
        return 0
    return now - then if isinstance(then, int) and then <= now else now


def parse_lsn(value: object) -> int | None:
    """Return a WAL position as a number of bytes.

    >>> parse_lsn("1/10"), parse_lsn(None)
    (4294967312, None)
    """
    found = re.fullmatch(r"([0-9A-F]+)/([0-9A-F]+)", str(value))
    return None if found is None else (int(found[1], 16) << 32) + int(found[2], 16)


def _subtract(now: int | None, before: int | None) -> int | None:
    """Return the rise of a position. Return None if one is not known, or if it fell: another server has taken over."""
    return None if now is None or before is None or now < before else now - before


class _View(NamedTuple):
    """A progress view."""

    # The name of the view's command in messages.
    command: str
    # For each beginning of a phase's name, pairs of columns: what is done, and what is to do. The preferred pair comes
    # first. The first beginning that fits is used, because a view keeps the numbers of earlier phases.
    phases: Mapping[str, tuple[tuple[str, str], ...]]


VIEWS: Mapping[str, _View] = {
    "pg_stat_progress_copy": _View("COPY", {"": (("bytes_processed", "bytes_total"),)}),
    "pg_stat_progress_create_index": _View(
        "CREATE INDEX",
        {
            "waiting": (("lockers_done", "lockers_total"),),
            "": (("tuples_done", "tuples_total"), ("blocks_done", "blocks_total")),
        },
    ),
    # VACUUM's number of indexes is known since PostgreSQL 17.
    "pg_stat_progress_vacuum": _View(
        "VACUUM",
        {
            "scanning heap": (("heap_blks_scanned", "heap_blks_total"),),
            "vacuuming heap": (("heap_blks_vacuumed", "heap_blks_total"),),
            "": (("indexes_processed", "indexes_total"),),
        },
    ),
}


@slotted
class RunningCommand:
    """A command that reports its progress."""

    pid: int
    command: str
    table: str
    phase: str
    # The part of the command's phase that is done, 0 to 1, None if the server does not know how much there is to do.
    fraction: float | None
    # How long the rest of the phase will take at its present rate, None if that is not known.
    left_s: float | None
    # How many rows a COPY has processed so far.
    rows: int | None


def find_work(samples: Sequence[Sample]) -> tuple[RunningCommand, ...]:
    """Return the commands that report progress in the last reading of a run of samples."""
    readings = [sample for sample in samples if any(view in sample.counters for view in VIEWS)]
    if not readings:
        return ()
    last = readings[-1]
    return tuple(_describe(view, row, readings) for view, row in _rows(last))


def _rows(sample: Sample) -> Iterator[tuple[str, CounterRow]]:
    for view in VIEWS:
        for row in sample.counters.get(view, ()):
            if isinstance(row.get("pid"), int):
                yield view, row


def _describe(view: str, row: CounterRow, readings: Sequence[Sample]) -> RunningCommand:
    fraction = _fraction(view, row)
    pid, rows = row["pid"], row.get("tuples_processed")
    assert isinstance(pid, int)
    return RunningCommand(
        pid=pid,
        command=str(row.get("command") or VIEWS[view].command),
        table=str(row.get("relname") or f"relation {row.get('relid')}"),
        phase=str(row.get("phase") or ""),
        fraction=fraction,
        left_s=None if fraction is None else _left(view, row, fraction, readings),
        rows=rows if isinstance(rows, int) else None,
    )


def _fraction(view: str, row: CounterRow) -> float | None:
    phase = str(row.get("phase") or "")
    parts = next(parts for beginning, parts in VIEWS[view].phases.items() if phase.startswith(beginning))
    for done, total in parts:
        have, whole = row.get(done), row.get(total)
        if isinstance(have, int) and isinstance(whole, int) and whole > 0 and have > 0:
            return min(1.0, have / whole)
    return None


def _left(view: str, row: CounterRow, fraction: float, readings: Sequence[Sample]) -> float | None:
    """Return how long the rest of the phase will take at its mean rate since the first reading that shows it."""
    for sample in readings[:-1]:
        for other_view, other in _rows(sample):
            is_same = other_view == view and (other["pid"], other.get("phase")) == (row["pid"], row.get("phase"))
            before = _fraction(view, other) if is_same else None
            if before is not None and before < fraction:
                return (1 - fraction) * (readings[-1].at_s - sample.at_s) / (fraction - before)
    return None
