"""Has the published times of experiment C, plans how many rows each batch size inserts, and evaluates times. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from penstock.core.slotted import slotted
from penstock.core.values.device import METRIC_NAMES
from penstock.watch.waits import COMMIT_WAITS, CPU

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow

SOURCE = (
    "Franck Pachot, AWS Aurora IO:XactSync is not a PostgreSQL wait event (dbi-services.com, 2020): Aurora PostgreSQL "
    "11.6, db.r5.large, 10 M rows by my_insert, beside a sampler but for the 133.4 s at 100,000 rows per commit"
)

SHORT_SOURCE = "Aurora PostgreSQL 11.6 (dbi-services.com, 2020)"

# The article's times in seconds, by rows per commit. Its table ends at 100 rows per commit.
SECONDS = {
    10_000_000: 135.9,
    1_000_000: 136.1,
    100_000: 133.4,
    10_000: 141.8,
    1_000: 177.6,
    100: 373.5,
}

# The rows per commit for which the article's seconds are from a run without its sampler.
UNSAMPLED = frozenset({100_000})

# The article's numbers of samples by rows per commit: of CPU, of IO:WALWrite and of IO:XactSync.
SAMPLES = {
    10_000_000: (346, 44, 0),
    1_000_000: (349, 38, 3),
    100_000: (315, 35, 30),
    10_000: (283, 32, 91),
    1_000: (252, 32, 250),
    100: (249, 24, 776),
}


# The advice is the smallest batch that takes at most this many times the best time. The article's batches of 10,000
# rows take 6.3 % more.
ADVISED_OVER_BEST = 1.07


@slotted
class Sweep:
    """How many rows are inserted, in which batch sizes, how often, and for how long at most."""

    # How many rows each run inserts. A run inserts fewer if it would take longer than the limit.
    rows: int
    # The batch sizes.
    rows_per_commit: tuple[int, ...]
    # How many rounds have a sampler. One more round has none.
    rounds: int
    # About how long a run may take at most. It determines how many rows a run inserts. None means that every run
    # inserts all rows.
    limit_s: float | None
    # How many rows the article's own check inserts, with a commit after every 1,000. The check runs before the rounds.
    check_rows: int
    watch_s: float
    # How long after the first round another one may begin.
    begin_within_s: float


# The batch size to which times are compared. The article finds that smaller batches take longer.
BASE = 10_000

# The full experiment. It takes about an hour with three topologies on two cores.
FULL = Sweep(
    rows=10_000_000,
    rows_per_commit=(10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1),
    rounds=2,
    limit_s=40.0,
    check_rows=1_000_000,
    watch_s=5.0,
    begin_within_s=24 * 3600.0,
)

# The short experiment. It takes less than two minutes with three topologies on two cores, even if other processes slow
# commits tenfold. With a limit of 1 s for a run, it took 122 s in that case.
QUICK = Sweep(
    rows=100_000,
    rows_per_commit=(100_000, 10_000, 1_000, 100, 10, 1),
    rounds=2,
    limit_s=0.3,
    check_rows=100_000,
    watch_s=0.5,
    begin_within_s=40.0,
)

# How many rows the article's check commits together.
CHECK_ROWS_PER_COMMIT = 1_000


def measure_all(rows: int) -> Sweep:
    """Return the full sweep with fewer rows, of which every run inserts all. `rows` is at least CHECK_ROWS_PER_COMMIT.

    >>> measure_all(50_000).rows_per_commit
    (50000, 10000, 1000, 100, 10, 1)
    """
    return replace(
        FULL,
        rows=rows,
        rows_per_commit=(rows, *(size for size in FULL.rows_per_commit if size < rows)),
        limit_s=None,
        check_rows=min(FULL.check_rows, rows - rows % CHECK_ROWS_PER_COMMIT),
    )


@slotted
class Size:
    """One batch size, and how many rows a run with it inserts."""

    rows_per_commit: int
    # How many rows a run inserts.
    rows: int
    # How many rows the shown seconds are for. The seconds of a run are scaled up to this number.
    total_rows: int

    @property
    def is_scaled(self) -> bool:
        """Return whether a run inserts fewer rows than `total_rows`."""
        return self.rows < self.total_rows

    @property
    def commits(self) -> int:
        """Return how many commits a run makes. Commits without rows do not count."""
        return -(-self.rows // self.rows_per_commit)

    def to_total(self, seconds: float) -> float:
        """Return the seconds that a run would take for `total_rows`, given its own seconds."""
        return seconds * self.total_rows / self.rows


# What a call uses per row: time, and processors' time.
Use = Literal["elapsed_s", "backend_cpu_s", "server_cpu_s", "machine_cpu_s"]


@slotted
class CallUse:
    """What one call of the procedure used. Processors' seconds are None if the server is not on this machine."""

    rows: int
    commits: int
    # When the call began, in seconds since 1970 by this machine's clock.
    began_at_s: float
    elapsed_s: float
    # The processors' seconds of the backend that ran the call, of all the server's processes, and of all processes of
    # this machine: also receivers and standbys, the client, and the kernel.
    backend_cpu_s: float | None
    server_cpu_s: float | None
    machine_cpu_s: float | None
    wal_bytes: int
    # How often the server flushed WAL, None if it does not count flushes, as Aurora.
    wal_flushes: int | None


@slotted
class CommitCost:
    """What one commit adds to the rows that it commits, in seconds. Processors' seconds are None if not known."""

    elapsed_s: float
    backend_cpu_s: float | None
    server_cpu_s: float | None
    machine_cpu_s: float | None


@slotted
class SizeResult:
    """The runs with one batch size, in their order.

    The median and the spread include all runs, with and without the sampler, because the runs differ by more than the
    sampler costs.
    """

    size: Size
    # The unscaled seconds of the runs with a sampler.
    runs_s: tuple[float, ...]
    # The unscaled seconds of the run without a sampler.
    bare_s: float | None = None
    # The samples of all runs, counted by wait event.
    waits: tuple[tuple[str, int], ...] = ()
    # What each run used, in the order in which they ran.
    uses: tuple[CallUse, ...] = ()
    # CloudWatch's metrics of the minutes in which runs fell, by name, and the runs' share of these minutes, 0 to 1.
    metrics: tuple[tuple[str, float], ...] = ()
    metrics_share: float | None = None

    @property
    def totals_s(self) -> tuple[float, ...]:
        """Return the seconds of each run, scaled to all rows. The run without a sampler is the last."""
        bare_s = () if self.bare_s is None else (self.bare_s,)
        return tuple(map(self.size.to_total, (*self.runs_s, *bare_s)))

    @property
    def median_s(self) -> float:
        """Return the median of `totals_s`: the runs' seconds, scaled to all rows."""
        return statistics.median(self.totals_s)

    @property
    def shares(self) -> tuple[float, float, float] | None:
        """Return the shares of samples on CPU, writing WAL, and waiting for a commit, 0 to 1. None without samples."""
        total = sum(count for _, count in self.waits)
        if total == 0:
            return None
        count = {name.lower(): found for name, found in self.waits}
        commit = sum(count.get(wait, 0) for wait in COMMIT_WAITS)
        return count.get(CPU.lower(), 0) / total, count.get("io:walwrite", 0) / total, commit / total

    @property
    def wait_shares(self) -> list[tuple[str, float]]:
        """Return the share of each wait event in the samples, 0 to 1, largest first."""
        total = sum(count for _, count in self.waits)
        return [(name, count / total) for name, count in sorted(self.waits, key=lambda wait: -wait[1])]

    @property
    def wal_bytes_per_commit(self) -> float | None:
        """Return how much WAL the server wrote for each commit. None without runs that counted it."""
        return sum(use.wal_bytes for use in self.uses) / self._commits if self.uses else None

    @property
    def flushes_per_commit(self) -> float | None:
        """Return how often the server flushed WAL for each commit. None if it does not count flushes."""
        counted = [use.wal_flushes for use in self.uses if use.wal_flushes is not None]
        return sum(counted) / self._commits if counted and len(counted) == len(self.uses) else None

    @property
    def _commits(self) -> int:
        return sum(use.commits for use in self.uses)

    def per_row(self, what: Use) -> float | None:
        """Return how many seconds a row took, of time or of processors, as the mean of all runs. None if not known."""
        values = [value for use in self.uses if (value := getattr(use, what)) is not None]
        if not values or len(values) < len(self.uses):
            return None
        return float(sum(values)) / sum(use.rows for use in self.uses)

    def busy(self, what: Use) -> float | None:
        """Return how many processors were in use on average. None if that is not known."""
        used_s, elapsed_s = self.per_row(what), self.per_row("elapsed_s")
        return None if used_s is None or not elapsed_s else used_s / elapsed_s


def plan_sizes(sweep: Sweep, *, row_s: float, commit_s: float) -> tuple[Size, ...]:
    """Return the batch sizes to run, each with the number of rows that its runs insert.

    A run inserts fewer rows than the sweep's if all would take longer than the sweep's limit, given that a row takes
    `row_s` seconds and a commit `commit_s`.

    >>> plan_sizes(QUICK, row_s=1e-5, commit_s=1e-3)[-1]
    Size(rows_per_commit=1, rows=297, total_rows=100000)
    """
    sizes = []
    for batch in sweep.rows_per_commit:
        one_s = row_s + commit_s / batch
        affordable = sweep.rows if sweep.limit_s is None else max(1, int(sweep.limit_s / one_s) // batch) * batch
        sizes.append(Size(rows_per_commit=batch, rows=min(sweep.rows, affordable), total_rows=sweep.rows))
    return tuple(sizes)


def multiples(results: Sequence[SizeResult], *, base: int | None = None) -> list[float | None]:
    """Return the median time of each batch size as a multiple of that with `base` rows per commit.

    By default the base is the largest batch. All elements are None if `base` did not run.
    """
    medians_s = {result.size.rows_per_commit: result.median_s for result in results}
    base_s = medians_s.get(max(medians_s) if base is None else base)
    return [None if base_s is None else result.median_s / base_s for result in results]


def published_multiple(rows_per_commit: int, *, base: int | None = None) -> float | None:
    """Return the article's time for a batch size, divided by its time for the batch size `base`.

    If `base` is None, it is the article's largest batch. Returns None if the article did not measure `rows_per_commit`.

    >>> published_multiple(100), published_multiple(100, base=10_000)
    (2.748..., 2.633...)
    """
    seconds = SECONDS.get(rows_per_commit)
    return None if seconds is None else seconds / SECONDS[max(SECONDS) if base is None else base]


def published_shares(rows_per_commit: int) -> tuple[float, ...] | None:
    """Return the article's shares of samples on CPU, writing WAL, and waiting for a commit at a batch size, 0 to 1.

    Returns None if the article has no samples of this batch size.
    """
    samples = SAMPLES.get(rows_per_commit)
    return None if samples is None else tuple(count / sum(samples) for count in samples)


def advise(results: Sequence[SizeResult]) -> int:
    """Return the smallest batch size in rows that takes at most ADVISED_OVER_BEST times as long as the fastest."""
    best_s = min(result.median_s for result in results)
    return min(result.size.rows_per_commit for result in results if result.median_s <= best_s * ADVISED_OVER_BEST)


# A commit's cost is computed if the rows of a batch size take at least so many times as long as those of the largest.
# Otherwise it is less than what runs differ by.
_LEAST_MULTIPLE = 1.2


def commit_cost(run: SizeResult, largest: SizeResult) -> CommitCost | None:
    """Return what a commit adds to its rows: what a row takes more than in the largest batch, by the commits per row.

    Returns None if the rows take hardly longer than in the largest batch.
    """
    row_s, base_s = run.per_row("elapsed_s"), largest.per_row("elapsed_s")
    if row_s is None or base_s is None or row_s < base_s * _LEAST_MULTIPLE:
        return None
    commits_per_row = 1 / run.size.rows_per_commit - 1 / largest.size.rows_per_commit

    def cost(what: Use) -> float | None:
        used_s, least_s = run.per_row(what), largest.per_row(what)
        return None if used_s is None or least_s is None else (used_s - least_s) / commits_per_row

    return CommitCost(
        elapsed_s=(row_s - base_s) / commits_per_row,
        backend_cpu_s=cost("backend_cpu_s"),
        server_cpu_s=cost("server_cpu_s"),
        machine_cpu_s=cost("machine_cpu_s"),
    )


def match_metrics(
    rows: Iterable[CounterRow], uses: Sequence[CallUse]
) -> tuple[tuple[tuple[str, float], ...], float | None]:
    """Return CloudWatch's metrics for the seconds of some runs, by name, and the runs' share of the minutes used.

    A row has the means of one period. Each counts by how long runs took place in it. A period that other runs share
    shows theirs too, so a small share means that the figures are not of these runs alone.
    """
    periods = {str(row["measured_at"]): row for row in rows}
    weighed = []
    for at, row in periods.items():
        began_s, period_s = datetime.fromisoformat(at).timestamp(), float(str(row["period_s"]))
        overlaps = (
            min(began_s + period_s, use.began_at_s + use.elapsed_s) - max(began_s, use.began_at_s) for use in uses
        )
        if (inside_s := sum(max(0.0, each) for each in overlaps)) > 0:
            weighed.append((row, inside_s, period_s))
    means = []
    for name in METRIC_NAMES:
        known = [(float(str(row[name])), inside_s) for row, inside_s, _ in weighed if name in row]
        if known:
            means.append((name, sum(value * inside_s for value, inside_s in known) / sum(each for _, each in known)))
    if not means:
        return (), None
    return tuple(means), sum(inside_s for _, inside_s, _ in weighed) / sum(period_s for *_, period_s in weighed)
