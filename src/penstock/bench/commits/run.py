"""Runs experiment C on topologies of the lab and on endpoints: a check, then rounds of every batch length.

Rounds are interleaved, so that what the machine does meanwhile meets every size and topology. A run whose rows or
commits do not add up is no result.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.bench.commits.plan import SizeResult, Sweep, plan_sizes
from penstock.errors import ServerError
from penstock.host import Machine, read_machine
from penstock.lab.installations import default_installation
from penstock.lab.topology import Lab
from penstock.server.commits import CallResult, CommitExperiment, experiment
from penstock.server.connection import ConnectionFactory, over_own_socket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.bench.commits.plan import Size
    from penstock.lab.topology.shapes import Shape

# The article's check commits every 1,000 rows.
_CHECK_ROWS_PER_COMMIT = 1_000
_PROBE_ROWS = 20_000
_PROBE_COMMITS = 200
# One alone has been thirty times what commits then took, behind what another topology wrote.
_PROBES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The article's check: what pg_stat_database counted for so many rows, and what others commit in a second."""

    rows: int
    commits: int
    counted_rows: int
    counted_commits: int
    background_commits_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """One topology or endpoint: its check and its sizes, largest batch first."""

    name: str
    postgresql: str
    check: Check
    sizes: tuple[SizeResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsResult:
    """All that was measured, and on what machine."""

    rows: int
    rounds: int
    machine: Machine
    targets: tuple[TargetResult, ...]


@dataclass(frozen=True, slots=True)
class _Target:
    """A server that is measured, and what is to be done after each run."""

    name: str
    experiment: CommitExperiment
    after_run: Callable[[], None]

    def call(self, *, rows: int, rows_per_commit: int) -> CallResult:
        """Time one call, and hold its rows and commits against what was asked. Raises ServerError."""
        result = self.experiment.call(rows=rows, rows_per_commit=rows_per_commit)
        self.after_run()
        check_sums(result, rows=rows, commits=-(-rows // rows_per_commit))
        return result


def measure_commits(
    sweep: Sweep,
    *,
    shapes: Sequence[Shape] = (),
    to: ConnectionFactory | None = None,
    home: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> CommitsResult:
    """Run the sweep on topologies, brought up and taken down here, and on `to`.

    Raises LabError, TargetError, ServerError; also where the rows or commits of a run do not add up.
    """
    with ExitStack() as stack:
        targets = [stack.enter_context(_topology(shape, home, say)) for shape in shapes]
        if to is not None:
            made = stack.enter_context(experiment(to))
            targets.append(_Target(name=to.safe_description, experiment=made, after_run=lambda: None))
        checks = [_check(target, sweep, say) for target in targets]
        sizes = [_choose_sizes(target, sweep, say) for target in targets]
        runs = _run_rounds(targets, sizes, sweep, say)
        results = [
            TargetResult(
                name=target.name,
                postgresql=target.experiment.facts().version,
                check=check,
                sizes=tuple(
                    SizeResult(size=size, runs_s=tuple(runs[target.name, size.rows_per_commit])) for size in chosen
                ),
            )
            for target, check, chosen in zip(targets, checks, sizes, strict=True)
        ]
    rounds = len(results[0].sizes[0].runs_s)
    return CommitsResult(rows=sweep.rows, rounds=rounds, machine=read_machine(), targets=tuple(results))


def check_sums(result: CallResult, *, rows: int, commits: int) -> None:
    """Raise ServerError where a run's rows or commits are not those that were asked for.

    The table's are exact; pg_stat_database has those of others too, and must have these at least.
    """
    counted = result.counted
    is_counted = counted.tup_inserted >= rows and counted.xact_commit >= commits
    if (result.rows, result.commits) == (rows, commits) and is_counted:
        return
    raise ServerError(
        "the rows and commits of a run do not add up",
        detail=f"Asked for {rows:,} rows and {commits:,} commits; the table has {result.rows:,} rows of "
        f"{result.commits:,} transactions, pg_stat_database counted {counted.tup_inserted:,} and "
        f"{counted.xact_commit:,} commits.",
        hint="Measure while nothing else works in this schema, and without resetting statistics.",
    )


@contextmanager
def _topology(shape: Shape, home: Path | None, say: Callable[[str], None]) -> Iterator[_Target]:
    """Provide a lab of this process's own, gone at the end."""
    lab = Lab.named(f"bench-{shape}-{os.getpid()}", home)
    say(f"bringing up {shape}")
    try:
        found = lab.up(shape, default_installation(), parameters="postgres")
        assert found.conninfo is not None
        factory = ConnectionFactory(over_own_socket(found.conninfo))
        with experiment(factory) as made:
            yield _Target(name=shape, experiment=made, after_run=lab.trim_receivers)
    finally:
        lab.down()


def _check(target: _Target, sweep: Sweep, say: Callable[[str], None]) -> Check:
    say(f"{target.name}: checking that rows and commits add up")
    background = target.experiment.watch_background(sweep.watch_s)
    result = target.call(rows=sweep.check_rows, rows_per_commit=_CHECK_ROWS_PER_COMMIT)
    return Check(
        rows=sweep.check_rows,
        commits=sweep.check_rows // _CHECK_ROWS_PER_COMMIT,
        counted_rows=result.counted.tup_inserted,
        counted_commits=result.counted.xact_commit,
        background_commits_per_s=background.xact_commit / sweep.watch_s,
    )


def _choose_sizes(target: _Target, sweep: Sweep, say: Callable[[str], None]) -> tuple[Size, ...]:
    """Return what runs, by what a row and a commit are seen to cost here."""
    row_s = target.call(rows=_PROBE_ROWS, rows_per_commit=_PROBE_ROWS).elapsed_s / _PROBE_ROWS
    probes = [target.call(rows=_PROBE_COMMITS, rows_per_commit=1).elapsed_s for _ in range(_PROBES)]
    commit_s = statistics.median(probes) / _PROBE_COMMITS
    say(f"{target.name}: a row takes {row_s * 1e6:.1f} µs, a commit {commit_s * 1e3:.2f} ms")
    return plan_sizes(sweep, row_s=row_s, commit_s=commit_s)


def _run_rounds(
    targets: Sequence[_Target], sizes: Sequence[tuple[Size, ...]], sweep: Sweep, say: Callable[[str], None]
) -> dict[tuple[str, int], list[float]]:
    """Return the seconds of each run by target and rows per commit."""
    runs: dict[tuple[str, int], list[float]] = {}
    began_s = time.monotonic()
    for number in range(1, sweep.rounds + 1):
        elapsed_s = time.monotonic() - began_s
        if elapsed_s > sweep.begin_within_s:
            say(f"leaving it at {number - 1} rounds, which took {elapsed_s:.0f} s")
            break
        say(f"round {number} of {sweep.rounds}, {elapsed_s:.0f} s after the first began")
        # All targets by one size, then by the next.
        for together in zip(*sizes, strict=True):
            for target, size in zip(targets, together, strict=True):
                result = target.call(rows=size.rows, rows_per_commit=size.rows_per_commit)
                runs.setdefault((target.name, size.rows_per_commit), []).append(result.elapsed_s)
    return runs
