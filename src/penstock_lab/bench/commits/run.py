"""Runs experiment C on topologies of the lab and on endpoints: a check, then rounds of every batch size.

Rounds are interleaved, so that a change of the machine's speed affects every size and topology. As in the published
experiment, a sampler runs ten times a second, except in one round, which shows what the sampler costs. A run with a
wrong number of rows or commits raises an error.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from penstock.core.connect.connection import ConnectionFactory, over_own_socket
from penstock.core.errors import ServerError
from penstock.core.host.machine import Machine, read_machine
from penstock.core.slotted import slotted
from penstock.core.values.device import RDS_METRICS, CounterRow
from penstock.embedded.installations import default_installation
from penstock.watch.sampler import Sampler, sampling_beside
from penstock.watch.waits import is_active, name_wait
from penstock_lab.bench.commits.experiment import CallResult, CommitExperiment, check_sums, experiment
from penstock_lab.bench.commits.plan import (
    CHECK_ROWS_PER_COMMIT,
    CallUse,
    Size,
    SizeResult,
    Sweep,
    match_metrics,
    plan_sizes,
)
from penstock_lab.topology.lab import Lab
from penstock_lab.topology.shapes import zones_of

if TYPE_CHECKING:
    from penstock.watch.values import Sample
    from penstock_lab.topology.shapes import Shape

_PROBE_ROWS = 20_000
_PROBE_COMMITS = 200
# How many probes measure a commit. Their median is used, because a single probe took up to thirty times as long as
# later commits while another topology was writing.
_PROBES = 3
# The interval of the sampler, as in the article.
SAMPLE_INTERVAL_S = 0.1
# How late CloudWatch's metrics of a minute may be, and how often a sample is taken to get those that have arrived.
_LATE_S = 300.0
_LATE_EVERY_S = 5.0


@slotted
class Check:
    """The article's check: the rows and commits that were made, and those that pg_stat_database counted."""

    # How many rows were inserted.
    rows: int
    commits: int
    counted_rows: int
    counted_commits: int
    # The rate of commits of other sessions.
    background_commits_per_s: float


@slotted
class CommitsTargetResult:
    """The results of one topology or server."""

    name: str
    postgresql: str
    check: Check
    # The batch sizes, largest first.
    sizes: tuple[SizeResult, ...]


@slotted
class CommitsResult:
    """All measurements, with the machine on which they were made."""

    rows: int
    machine: Machine
    targets: tuple[CommitsTargetResult, ...]

    @property
    def rounds(self) -> int:
        """Return how many rounds ran, including the one without a sampler."""
        return len(self.targets[0].sizes[0].totals_s)


@dataclass(slots=True)
class _SizeRuns:
    """The runs of one batch size so far."""

    # The seconds of each run with a sampler.
    runs_s: list[float] = field(default_factory=list)
    # The seconds of the run without a sampler.
    bare_s: float | None = None
    # The number of samples by wait event.
    waits: Counter[str] = field(default_factory=Counter)
    uses: list[CallUse] = field(default_factory=list)


@dataclass(slots=True)
class _CommitsTarget:
    """A server to measure, its sampler, and the function to call after each run."""

    name: str
    experiment: CommitExperiment
    sampler: Sampler
    after_run: Callable[[], None] = lambda: None
    # Whether CloudWatch has metrics of the server, and those that samples had so far.
    is_on_rds: bool = False
    metrics: list[CounterRow] = field(default_factory=list)
    opened_s: float = field(default_factory=time.monotonic)

    def see(self, sample: Sample) -> None:
        """Keep what CloudWatch has reported since the last sample."""
        self.metrics += sample.counters.get(RDS_METRICS, ())

    def await_metrics(self, until_s: float) -> None:
        """Sample until CloudWatch has reported the minute of a moment, in seconds since 1970, or is too late.

        Raises ServerError. If CloudWatch has reported nothing for so long, AWS has refused, and nothing is waited for.
        """
        now_s = time.monotonic()
        is_refused = not self.metrics and now_s - self.opened_s > _LATE_S
        while self.is_on_rds and not is_refused and time.monotonic() < now_s + _LATE_S:
            self.see(self.sampler.sample(reads_all=True))
            if any(datetime.fromisoformat(str(row["measured_at"])).timestamp() + 60 >= until_s for row in self.metrics):
                return
            time.sleep(_LATE_EVERY_S)

    def call(self, *, rows: int, rows_per_commit: int) -> CallResult:
        """Insert `rows` by one call of my_insert, and return what it used.

        Raises ServerError, also if the number of rows or commits is wrong.
        """
        result = self.experiment.call(rows=rows, rows_per_commit=rows_per_commit)
        self.after_run()
        check_sums(result, rows=rows, commits=-(-rows // rows_per_commit))
        return result

    def call_sampled(self, *, rows: int, rows_per_commit: int, runs: _SizeRuns) -> None:
        """Insert `rows` as `call` does while the sampler runs.

        What the call used and its samples by wait event are added to `runs`.
        """
        with sampling_beside(self.sampler, interval_s=SAMPLE_INTERVAL_S) as samples:
            result = self.call(rows=rows, rows_per_commit=rows_per_commit)
        runs.runs_s.append(result.use.elapsed_s)
        runs.uses.append(result.use)
        for sample in samples:
            calls = [each for each in sample.sessions if is_active(each) and each.pid == result.pid]
            runs.waits += Counter(map(name_wait, calls))
            self.see(sample)


def measure_commits(
    sweep: Sweep,
    *,
    shapes: Sequence[Shape] = (),
    volumes: Sequence[str] = (),
    zone_latency_s: float = 0.0,
    to: ConnectionFactory | None = None,
    open_sampler: Callable[[], Sampler] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> CommitsResult:
    """Run the sweep on topologies, which are created and removed here, and on the server `to`.

    If `volumes` are given, each topology is created on each of them. Topology quorum has none, because it stands for
    Aurora, which has no EBS. Traffic to zones is delayed by `zone_latency_s`, each way. `open_sampler` is given if `to`
    is on RDS: its samples have CloudWatch's metrics. `say` is called with the progress. Raises LabError, TargetError,
    and ServerError, also if a run's number of rows or commits is wrong.
    """
    with ExitStack() as stack:
        targets = [
            stack.enter_context(_topology(shape, volume, zone_latency_s if zones_of(shape) else 0.0, say))
            for shape in shapes
            for volume in _volumes_of(shape, volumes)
        ]
        if to is not None:
            targets.append(stack.enter_context(_endpoint(to, open_sampler)))
        checks = [_check(target, sweep, say) for target in targets]
        sizes = [_choose_sizes(target, sweep, say) for target in targets]
        runs = _run_rounds(targets, sizes, sweep, say)
        for target in targets:
            _await_metrics(target, say)
        results = [
            CommitsTargetResult(
                name=target.name,
                postgresql=target.experiment.facts.version,
                check=check,
                sizes=tuple(_conclude(size, runs[target.name, size.rows_per_commit], target) for size in chosen),
            )
            for target, check, chosen in zip(targets, checks, sizes, strict=True)
        ]
    return CommitsResult(rows=sweep.rows, machine=read_machine(), targets=tuple(results))


def _await_metrics(target: _CommitsTarget, say: Callable[[str], None]) -> None:
    """Wait for CloudWatch's last metrics. If the server cannot be sampled any more, go on without them."""
    if target.is_on_rds:
        say(f"{target.name}: waiting for CloudWatch's metrics of the last minutes, {_LATE_S / 60:.0f} minutes at most")
    try:
        target.await_metrics(time.time())
    except ServerError as error:
        say(f"{target.name}: CloudWatch's last metrics are missing: {error.message}")


def _volumes_of(shape: Shape, volumes: Sequence[str]) -> list[str | None]:
    return [None] if shape == "quorum" or not volumes else [*volumes]


# Numbers the labs of this process, whose names must differ.
_LABS = itertools.count(1)


@contextmanager
def _topology(
    shape: Shape, volume: str | None, zone_latency_s: float, say: Callable[[str], None]
) -> Iterator[_CommitsTarget]:
    """Create a lab for this process and remove it at the end."""
    name = shape if volume is None else f"{shape} on {volume}"
    name += f", zones {1000 * zone_latency_s:g} ms away" if zone_latency_s else ""
    lab = Lab.named(f"bench-{next(_LABS)}-{os.getpid()}")
    say(f"bringing up {name}")
    try:
        found = lab.up(
            shape, default_installation(), parameters="postgres", volume=volume, zone_latency_s=zone_latency_s
        )
        assert found.conninfo is not None
        factory = ConnectionFactory(over_own_socket(found.conninfo))
        with experiment(factory) as made, closing(Sampler(factory, interval_s=SAMPLE_INTERVAL_S)) as sampler:
            yield _CommitsTarget(name=name, experiment=made, sampler=sampler, after_run=lab.trim_receivers)
    finally:
        lab.down()


@contextmanager
def _endpoint(to: ConnectionFactory, open_sampler: Callable[[], Sampler] | None) -> Iterator[_CommitsTarget]:
    open_one = open_sampler or partial(Sampler, to, interval_s=SAMPLE_INTERVAL_S)
    with experiment(to) as made, closing(open_one()) as sampler:
        is_on_rds = open_sampler is not None
        yield _CommitsTarget(name=to.safe_description, experiment=made, sampler=sampler, is_on_rds=is_on_rds)


def _check(target: _CommitsTarget, sweep: Sweep, say: Callable[[str], None]) -> Check:
    say(f"{target.name}: checking the number of rows and commits")
    background = target.experiment.watch_background(sweep.watch_s)
    result = target.call(rows=sweep.check_rows, rows_per_commit=CHECK_ROWS_PER_COMMIT)
    return Check(
        rows=sweep.check_rows,
        commits=sweep.check_rows // CHECK_ROWS_PER_COMMIT,
        counted_rows=result.counted.tup_inserted,
        counted_commits=result.counted.xact_commit,
        background_commits_per_s=background.xact_commit / sweep.watch_s,
    )


def _choose_sizes(target: _CommitsTarget, sweep: Sweep, say: Callable[[str], None]) -> tuple[Size, ...]:
    """Choose the sizes to run, from the measured costs of a row and of a commit."""
    row_s = target.call(rows=_PROBE_ROWS, rows_per_commit=_PROBE_ROWS).use.elapsed_s / _PROBE_ROWS
    probes = [target.call(rows=_PROBE_COMMITS, rows_per_commit=1).use.elapsed_s for _ in range(_PROBES)]
    commit_s = statistics.median(probes) / _PROBE_COMMITS
    say(f"{target.name}: a row takes {row_s * 1e6:.1f} µs, a commit {commit_s * 1e3:.2f} ms")
    return plan_sizes(sweep, row_s=row_s, commit_s=commit_s)


def _run_rounds(
    targets: Sequence[_CommitsTarget], sizes: Sequence[tuple[Size, ...]], sweep: Sweep, say: Callable[[str], None]
) -> dict[tuple[str, int], _SizeRuns]:
    """Return the runs by target and rows per commit. The second round has no sampler."""
    seen: dict[tuple[str, int], _SizeRuns] = {}
    began_s = time.monotonic()
    for number in range(sweep.rounds + 1):
        elapsed_s = time.monotonic() - began_s
        is_bare = number == 1
        if elapsed_s > sweep.begin_within_s:
            say(f"ending after {number} rounds, which took {elapsed_s:.0f} s")
            break
        kind = ", without a sampler" if is_bare else ""
        say(f"round {number + 1} of {sweep.rounds + 1}{kind}, {elapsed_s:.0f} s after the first began")
        # Run one size on all targets, then the next size.
        for together in zip(*sizes, strict=True):
            for target, size in zip(targets, together, strict=True):
                runs = seen.setdefault((target.name, size.rows_per_commit), _SizeRuns())
                if is_bare:
                    runs.uses.append(target.call(rows=size.rows, rows_per_commit=size.rows_per_commit).use)
                    runs.bare_s = runs.uses[-1].elapsed_s
                else:
                    target.call_sampled(rows=size.rows, rows_per_commit=size.rows_per_commit, runs=runs)
    return seen


def _conclude(size: Size, runs: _SizeRuns, target: _CommitsTarget) -> SizeResult:
    metrics, share = match_metrics(target.metrics, runs.uses)
    return SizeResult(
        size=size,
        runs_s=tuple(runs.runs_s),
        bare_s=runs.bare_s,
        waits=tuple(sorted(runs.waits.items())),
        uses=tuple(runs.uses),
        metrics=metrics,
        metrics_share=share,
    )
