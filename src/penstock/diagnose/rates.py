"""Commits, rows, rollbacks and WAL a second over a run of samples.

While a procedure commits inside, the statistics views stand still, and all that it did arrives at once when it ends;
the next transaction's number and the WAL position move meanwhile. Those numbers also go to subtransactions and to what
is rolled back, and commits that write nothing take none. So the counters are believed, but not before a procedure has
counted; and one that was at work before the first sample counts for no more commits than numbers were taken since.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.model.recording import CounterRow, Sample, SessionSample

# What is read of pg_stat_database.
_COUNTED = ("xact_commit", "xact_rollback", "tup_inserted", "tup_updated", "tup_deleted")

# Measured on 18.4: an insert into a table of two integers with a primary key writes 130 bytes of WAL, a commit 40.
_WAL_BYTES_PER_ROW = 130
_WAL_BYTES_PER_COMMIT = 40

# Sessions report what they did at most once a second, and PostgreSQL 14's collector is half a second behind.
_DELAY_S = 2.0

# A procedure that has counted adds more commits and rows than this part of the transactions' numbers.
_LEAST_ARRIVED = 0.05

# Ages of a statement and of its transaction that differ by less are the same.
_SAME_TIME_S = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What was done a second; None where nothing says. `writes_per_s` are the commits that wrote, which alone flush.

    `rows_per_commit` is of commits that wrote: as the server counted where `is_exact`, otherwise estimated from WAL.
    """

    elapsed_s: float = 0.0
    commits_per_s: float | None = None
    writes_per_s: float | None = None
    rollbacks_per_s: float | None = None
    wal_bytes_per_s: float | None = None
    rows_per_commit: float | None = None
    is_exact: bool = False


class _Point(NamedTuple):
    """A reading; commits, rollbacks and rows are what was added since the first one. `is_read`: the view had rows."""

    at_s: float
    xid: int | None
    wal_bytes: int | None
    own_commits: int
    commits: int = 0
    rollbacks: int = 0
    rows: int = 0
    is_read: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Return how many of the commits wrote, at most: each took a number, and changed a row."""
        return min(self.commits or 0, self.xids or 0, self.rows)


class RatesMeter:
    """Sees samples one by one; keeps a point for each reading of the counters, once a second."""

    def __init__(self) -> None:
        self._points: list[_Point] = []
        self._ends: list[_Point] = []
        self._before: dict[object, CounterRow] | None = None
        self._added: Counter[str] = Counter()
        self._inside_s: float | None = None
        self._sees_ages = False

    def see(self, sample: Sample) -> None:
        """Take what a sample has read."""
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
        """Add what each counter has risen since the last reading: a crash resets them in between."""
        if self._before is not None:
            for row in rows:
                before = self._before.get(row.get("datname"), {})
                self._added.update({name: _rise(before, row, name) for name in _COUNTED})
        self._before = {row.get("datname"): {name: row.get(name) for name in _COUNTED} for row in rows}

    def result(self) -> Rates:
        """Return the rates from the first to the last reading of the counters; less than two seconds say little."""
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
        """Return the commits, and those that wrote what was counted: None where not all is counted yet."""
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
        """Return whether a procedure would have been seen, and ordinary commits have been counted."""
        return self._sees_ages and self._ends[-1].at_s - self._ends[0].at_s >= _DELAY_S


def measure_rates(samples: Iterable[Sample]) -> Rates:
    """Return the rates of a run of samples."""
    meter = RatesMeter()
    for sample in samples:
        meter.see(sample)
    return meter.result()


def _commits_inside(session: SessionSample) -> bool:
    """Return whether a statement has committed inside: its transaction is younger than it."""
    if session.state != "active" or session.query_s is None or session.transaction_s is None:
        return False
    return session.query_s - session.transaction_s > _SAME_TIME_S


def _has_counted(points: Sequence[_Point], seen_s: float, xids: int) -> bool:
    """Return whether a procedure that was last seen at that time has counted what it did."""
    before = max((number for number, point in enumerate(points) if point.at_s < seen_s), default=len(points) - 1)
    arrived = _add(points[before], points[-1])
    is_much = (arrived.commits or 0) + arrived.rows > _LEAST_ARRIVED * xids
    return points[-1].at_s >= seen_s + _DELAY_S or (points[-1].at_s > seen_s and is_much)


def _count_read_only(points: Sequence[_Point]) -> float:
    """Return how many commits wrote nothing, by the usual rate: in some seconds procedures count all at once."""
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
    """Return what was added to a counter: all of it where it was reset, or its database created, in between."""
    then, now = before.get(name), after.get(name)
    if not isinstance(now, int):
        return 0
    return now - then if isinstance(then, int) and then <= now else now


def _subtract(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before
