"""Runs experiment C on topologies of the lab and on endpoints: a check, then rounds of every batch size.

Rounds are interleaved, so that a change of the machine's speed affects every size and topology. As in the published
experiment, a sampler runs ten times a second, except in one round, which shows what the sampler costs. A run with a
wrong number of rows or commits raises an error.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.core.catalogue.catalog import read_server_facts
from penstock.core.connect.connection import Connection, ConnectionFactory, is_usable, over_own_socket
from penstock.core.connect.errors import translate_errors
from penstock.core.errors import ServerError
from penstock.core.host.machine import Machine, read_machine
from penstock.core.slotted import slotted
from penstock.core.sql import fetch_one, fetch_rows
from penstock.core.values.server import ServerFacts
from penstock.embedded.installations import default_installation
from penstock.watch.sampler import Sampler, sampling_beside
from penstock.watch.waits import is_active, name_wait
from penstock_lab.bench.commits.plan import Size, SizeResult, Sweep, plan_sizes
from penstock_lab.bench.ways import SCHEMA, own_schema
from penstock_lab.topology.lab import Lab

if TYPE_CHECKING:
    from penstock_lab.topology.shapes import Shape

# The article's procedure, with its names and arguments.
MY_INSERT = """
create table demo (id int primary key,n int);
create procedure my_insert(rows_per_call int,rows_per_xact int) as $$
declare
 row_counter int :=0;
begin for i in 1..rows_per_call loop
  insert into demo values (i,i);
  row_counter:=row_counter+1;
  if row_counter>=rows_per_xact then commit; row_counter:=0; end if;
 end loop; commit; end;
$$ language plpgsql;
"""

# How long to wait until the database's counters include a session that has ended. On PostgreSQL 14 they pass through
# the statistics collector.
_COUNTED_TIMEOUT_S = 15
_POLL_S = 0.2
_CANCEL_TIMEOUT_S = 10


@slotted
class DatabaseCounters:
    """The row of database_counters.sql: commits and inserted rows of the database."""

    xact_commit: int
    tup_inserted: int

    def since(self, before: DatabaseCounters) -> DatabaseCounters:
        """Return by how much the counters have grown since an earlier reading."""
        return DatabaseCounters(
            xact_commit=self.xact_commit - before.xact_commit, tup_inserted=self.tup_inserted - before.tup_inserted
        )


@slotted
class CallResult:
    """The time of one call of procedure my_insert, and the rows and commits that it made."""

    # The backend that ran the call.
    pid: int
    elapsed_s: float
    # The number of rows in the table after the call.
    rows: int
    # The number of transactions that inserted the rows.
    commits: int
    # How much the counters of the database grew during the call. They include what other sessions did.
    counted: DatabaseCounters


class CommitExperiment:
    """The table and the procedure of the experiment on one server. The function `experiment` creates them."""

    def __init__(self, factory: ConnectionFactory, control: Connection) -> None:
        self._factory = factory
        self._control = control

    def facts(self) -> ServerFacts:
        """Return the server's facts. Raises ServerError."""
        return read_server_facts(self._control)

    def watch_background(self, seconds: float) -> DatabaseCounters:
        """Return how many commits and rows other sessions make in `seconds`. Raises ServerError."""
        before = self._read_counters()
        time.sleep(seconds)
        return self._read_counters().since(before)

    def call(self, *, rows: int, rows_per_commit: int, clock: Callable[[], float] = time.perf_counter) -> CallResult:
        """Empty the table, and insert `rows` with a commit after every `rows_per_commit`.

        Return the time of the call by `clock`, which returns seconds, and what the table and the counters show. Raises
        ServerError.
        """
        with translate_errors("emptying the table of the experiment"):
            self._control.execute(f"TRUNCATE {SCHEMA}.demo".encode())
            self._control.execute(f"VACUUM {SCHEMA}.demo".encode())
        before = self._read_counters()
        pid, elapsed_s = self._time_call(rows, rows_per_commit, clock)
        counted = self._await_counted(before, rows)
        found_rows, commits = self._count_rows()
        return CallResult(pid=pid, elapsed_s=elapsed_s, rows=found_rows, commits=commits, counted=counted)

    def _time_call(self, rows: int, rows_per_commit: int, clock: Callable[[], float]) -> tuple[int, float]:
        # The session reports its counters when the connection is closed, and not during the call.
        with self._factory.connect(label="bench") as connection, translate_errors("calling my_insert"):
            # my_insert names its table without a schema, as in the article. A SET clause of the procedure would forbid
            # COMMIT in it, so the session sets search_path.
            connection.execute(f"SET search_path = {SCHEMA}".encode())
            began_s = clock()
            try:
                connection.execute("CALL my_insert(%s::int, %s::int)", [rows, rows_per_commit])
            except BaseException:
                if not is_usable(connection):
                    # If the call is not cancelled, the server continues it and keeps the schema locked.
                    connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
                raise
            return connection.info.backend_pid, clock() - began_s

    def _count_rows(self) -> tuple[int, int]:
        """Return the number of rows and of the transactions that inserted them, by the xmin of each row."""
        query = sql.SQL("SELECT pg_catalog.count(*), pg_catalog.count(DISTINCT xmin::text::int8) FROM {}").format(
            sql.Identifier(SCHEMA, "demo")
        )
        with translate_errors("counting the rows of the experiment"):
            row = fetch_one(self._control, query)
        return int(row[0]), int(row[1])

    def _read_counters(self) -> DatabaseCounters:
        with translate_errors("reading pg_stat_database"):
            return fetch_rows(self._control, "penstock_lab.bench/database_counters", DatabaseCounters)[0]

    def _await_counted(self, before: DatabaseCounters, rows: int) -> DatabaseCounters:
        deadline_s = time.monotonic() + _COUNTED_TIMEOUT_S
        while (counted := self._read_counters().since(before)).tup_inserted < rows and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        return counted


@contextmanager
def experiment(factory: ConnectionFactory) -> Iterator[CommitExperiment]:
    """Create the experiment's table and procedure in their own schema, and drop the schema in every case.

    `own_schema` has the rights needed and the errors raised.
    """
    with own_schema(factory, purpose="measure commits", setup=MY_INSERT) as control:
        yield CommitExperiment(factory, control)


# How many rows the article's check inserts per commit.
_CHECK_ROWS_PER_COMMIT = 1_000
_PROBE_ROWS = 20_000
_PROBE_COMMITS = 200
# How many probes measure a commit. Their median is used, because a single probe took up to thirty times as long as
# later commits while another topology was writing.
_PROBES = 3
# The interval of the sampler, as in the article.
_SAMPLE_INTERVAL_S = 0.1


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
    # For each sample, the seconds of busy processors and the seconds that the sample covers.
    busy: list[tuple[float, float]] = field(default_factory=list)


@dataclass(slots=True)
class _CommitsTarget:
    """A server to measure, its sampler, and the function to call after each run."""

    name: str
    experiment: CommitExperiment
    sampler: Sampler
    after_run: Callable[[], None]

    def call(self, *, rows: int, rows_per_commit: int) -> CallResult:
        """Insert `rows` by one timed call of my_insert, and return its time, rows and commits.

        Raises ServerError, also if the number of rows or commits is wrong.
        """
        result = self.experiment.call(rows=rows, rows_per_commit=rows_per_commit)
        self.after_run()
        check_sums(result, rows=rows, commits=-(-rows // rows_per_commit))
        return result

    def call_sampled(self, *, rows: int, rows_per_commit: int, runs: _SizeRuns) -> None:
        """Insert `rows` as `call` does while the sampler runs.

        The time of the call, its samples by wait event, and the busy processors are added to `runs`.
        """
        with sampling_beside(self.sampler, interval_s=_SAMPLE_INTERVAL_S) as samples:
            result = self.call(rows=rows, rows_per_commit=rows_per_commit)
        runs.runs_s.append(result.elapsed_s)
        for sample in samples:
            calls = [each for each in sample.sessions if is_active(each) and each.pid == result.pid]
            runs.waits += Counter(map(name_wait, calls))
            if calls and sample.host_busy_cpus is not None:
                runs.busy.append((sample.host_busy_cpus * sample.interval_s, sample.interval_s))


def measure_commits(
    sweep: Sweep,
    *,
    shapes: Sequence[Shape] = (),
    volume: str | None = None,
    to: ConnectionFactory | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> CommitsResult:
    """Run the sweep on topologies, which are created and removed here, and on the server `to`.

    If `volume` is given, the servers of each topology have their data on such a volume. Topology quorum has none,
    because it stands for Aurora, which has no EBS. `say` is called with the progress. Raises LabError, TargetError, and
    ServerError, also if a run's number of rows or commits is wrong.
    """
    with ExitStack() as stack:
        targets = [stack.enter_context(_topology(shape, volume, say)) for shape in shapes]
        if to is not None:
            targets.append(stack.enter_context(_endpoint(to)))
        checks = [_check(target, sweep, say) for target in targets]
        sizes = [_choose_sizes(target, sweep, say) for target in targets]
        runs = _run_rounds(targets, sizes, sweep, say)
        results = [
            CommitsTargetResult(
                name=target.name,
                postgresql=target.experiment.facts().version,
                check=check,
                sizes=tuple(_conclude(size, runs[target.name, size.rows_per_commit]) for size in chosen),
            )
            for target, check, chosen in zip(targets, checks, sizes, strict=True)
        ]
    return CommitsResult(rows=sweep.rows, machine=read_machine(), targets=tuple(results))


def check_sums(result: CallResult, *, rows: int, commits: int) -> None:
    """Raise ServerError if a run did not make the expected number of rows or commits.

    The counts from the table are exact. pg_stat_database includes other sessions, so its counts may only be higher.
    """
    counted = result.counted
    is_counted = counted.tup_inserted >= rows and counted.xact_commit >= commits
    if (result.rows, result.commits) == (rows, commits) and is_counted:
        return
    raise ServerError(
        "the rows and commits of a run do not match",
        detail=f"Asked for {rows:,} rows and {commits:,} commits; the table has {result.rows:,} rows of "
        f"{result.commits:,} transactions, pg_stat_database counted {counted.tup_inserted:,} and "
        f"{counted.xact_commit:,} commits.",
        hint="Measure while no other session uses this schema, and do not reset statistics.",
    )


@contextmanager
def _topology(shape: Shape, volume: str | None, say: Callable[[str], None]) -> Iterator[_CommitsTarget]:
    """Create a lab for this process and remove it at the end."""
    lab = Lab.named(f"bench-{shape}-{os.getpid()}")
    say(f"bringing up {shape}")
    try:
        volume = None if shape == "quorum" else volume
        found = lab.up(shape, default_installation(), parameters="postgres", volume=volume)
        assert found.conninfo is not None
        factory = ConnectionFactory(over_own_socket(found.conninfo))
        with experiment(factory) as made, closing(Sampler(factory, interval_s=_SAMPLE_INTERVAL_S)) as sampler:
            name = shape if volume is None else f"{shape} on {volume}"
            yield _CommitsTarget(name=name, experiment=made, sampler=sampler, after_run=lab.trim_receivers)
    finally:
        lab.down()


@contextmanager
def _endpoint(to: ConnectionFactory) -> Iterator[_CommitsTarget]:
    with experiment(to) as made, closing(Sampler(to, interval_s=_SAMPLE_INTERVAL_S)) as sampler:
        yield _CommitsTarget(name=to.safe_description, experiment=made, sampler=sampler, after_run=lambda: None)


def _check(target: _CommitsTarget, sweep: Sweep, say: Callable[[str], None]) -> Check:
    say(f"{target.name}: checking the number of rows and commits")
    background = target.experiment.watch_background(sweep.watch_s)
    result = target.call(rows=sweep.check_rows, rows_per_commit=_CHECK_ROWS_PER_COMMIT)
    return Check(
        rows=sweep.check_rows,
        commits=sweep.check_rows // _CHECK_ROWS_PER_COMMIT,
        counted_rows=result.counted.tup_inserted,
        counted_commits=result.counted.xact_commit,
        background_commits_per_s=background.xact_commit / sweep.watch_s,
    )


def _choose_sizes(target: _CommitsTarget, sweep: Sweep, say: Callable[[str], None]) -> tuple[Size, ...]:
    """Choose the sizes to run, from the measured costs of a row and of a commit."""
    row_s = target.call(rows=_PROBE_ROWS, rows_per_commit=_PROBE_ROWS).elapsed_s / _PROBE_ROWS
    probes = [target.call(rows=_PROBE_COMMITS, rows_per_commit=1).elapsed_s for _ in range(_PROBES)]
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
                    runs.bare_s = target.call(rows=size.rows, rows_per_commit=size.rows_per_commit).elapsed_s
                else:
                    target.call_sampled(rows=size.rows, rows_per_commit=size.rows_per_commit, runs=runs)
    return seen


def _conclude(size: Size, runs: _SizeRuns) -> SizeResult:
    busy_s, seen_s = map(sum, zip(*runs.busy, strict=True)) if runs.busy else (0.0, 0.0)
    return SizeResult(
        size=size,
        runs_s=tuple(runs.runs_s),
        bare_s=runs.bare_s,
        waits=tuple(sorted(runs.waits.items())),
        busy_cpus=busy_s / seen_s if seen_s else None,
    )
