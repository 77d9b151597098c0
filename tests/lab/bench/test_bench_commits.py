"""Experiment C on real servers: what must add up, what is refused, and that nothing of it stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import LabError, ServerError, TargetError, UsageError
from penstock.core.host.machine import read_machine
from penstock.embedded.installations import default_installation
from penstock_lab.bench.command import commits
from penstock_lab.bench.commits import plan
from penstock_lab.bench.commits.experiment import SCHEMA, CallResult, DatabaseCounters, check_sums, experiment
from penstock_lab.bench.commits.plan import (
    QUICK,
    CallUse,
    Size,
    SizeResult,
    Sweep,
    advise,
    commit_cost,
    match_metrics,
    measure_all,
    multiples,
    plan_sizes,
    published_multiple,
)
from penstock_lab.bench.commits.run import measure_commits
from penstock_lab.bench.commits.table import use_rows
from penstock_lab.topology.lab import Lab
from penstock_lab.volumes import PACKAGES, check_machine
from support import pgbouncer
from support.command import run_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.core.values.device import CounterRow
    from penstock.embedded.server import EmbeddedServer
    from support.servers import PgServer, ServerPool

TINY = Sweep(
    rows=300, rows_per_commit=(300, 10, 1), rounds=2, limit_s=5.0, check_rows=3_000, watch_s=0.1, begin_within_s=60.0
)


def _schema_count(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", [SCHEMA]).fetchone()
    assert row is not None
    return int(row[0])


def test_sizes_that_would_take_too_long_get_fewer_rows() -> None:
    """Whole batches, and at least one."""
    sizes = plan_sizes(QUICK, row_s=1e-5, commit_s=1.0)
    assert [size.rows for size in sizes] == [100_000, 10_000, 1_000, 100, 10, 1]
    assert [size.is_scaled for size in sizes] == [False, True, True, True, True, True]
    assert sizes[3].to_total(2.0) == 2_000.0


def test_advice_is_the_smallest_batch_within_seven_percent_of_the_best() -> None:
    """The article's figures advise 10,000 rows."""
    seconds = {1_000_000: 136.1, 100_000: 133.4, 10_000: 141.8, 1_000: 177.6}
    results = [
        SizeResult(size=Size(rows_per_commit=batch, rows=10**7, total_rows=10**7), runs_s=(taken_s,))
        for batch, taken_s in seconds.items()
    ]
    assert advise(results) == 10_000
    assert multiples(results)[2] == pytest.approx(141.8 / 136.1)
    assert multiples(results, base=10_000)[3] == pytest.approx(177.6 / 141.8)
    assert multiples(results, base=10) == [None] * 4


def test_published_times_are_multiples_of_both_bases() -> None:
    """373.5 s at 100 rows per commit, against 135.9 s in one transaction and 141.8 s at 10,000."""
    assert published_multiple(100) == pytest.approx(2.748, abs=0.001)
    assert published_multiple(100, base=10_000) == pytest.approx(2.634, abs=0.001)


@pytest.mark.parametrize(("rows", "commits", "counted_rows"), [(299, 30, 300), (300, 29, 300), (300, 30, 0)])
def test_runs_that_do_not_add_up_are_no_results(rows: int, commits: int, counted_rows: int) -> None:
    """A row or a commit is missing, or the server has not counted them: the article once read +0 rows."""
    counted = DatabaseCounters(xact_commit=40, tup_inserted=counted_rows)
    with pytest.raises(ServerError, match="do not match"):
        check_sums(CallResult(pid=1, use=_use(rows, commits, 1.0), counted=counted), rows=300, commits=30)


def _use(rows: int, commits: int, elapsed_s: float, **more: Any) -> CallUse:
    """Return what a call used: a tenth of its time on a processor, 1 kB of WAL and a flush for each commit."""
    cpu = dict.fromkeys(("backend_cpu_s", "server_cpu_s", "machine_cpu_s"), elapsed_s / 10)
    wal = {"wal_bytes": 1000 * commits, "wal_flushes": commits}
    return CallUse(
        **{"rows": rows, "commits": commits, "began_at_s": 0.0, "elapsed_s": elapsed_s, **cpu, **wal, **more}
    )


def _result(rows_per_commit: int, *uses: CallUse) -> SizeResult:
    size = Size(rows_per_commit=rows_per_commit, rows=1000, total_rows=1000)
    return SizeResult(size=size, runs_s=tuple(use.elapsed_s for use in uses), uses=uses)


def test_what_a_commit_costs_is_what_it_adds_to_its_rows() -> None:
    """1,000 rows alone take 1 s; with 100 commits 2 s, so a commit takes 10 ms, of which 4 ms are its backend's CPU."""
    whole = _result(1000, _use(1000, 1, 1.0, backend_cpu_s=0.5))
    small = _result(
        10, _use(1000, 100, 1.5, backend_cpu_s=0.7), _use(1000, 100, 2.5, backend_cpu_s=1.1, server_cpu_s=None)
    )
    cost = commit_cost(small, whole)
    assert cost is not None
    assert cost.elapsed_s == pytest.approx(1.0 / 99)
    assert cost.backend_cpu_s == pytest.approx(0.4 / 99)
    assert cost.server_cpu_s is None
    assert commit_cost(_result(500, _use(1000, 2, 1.1)), whole) is None
    assert small.busy("backend_cpu_s") == pytest.approx(1.8 / 4)
    assert (small.wal_bytes_per_commit, small.flushes_per_commit) == (1000, 1)
    assert _result(10, _use(1000, 100, 1.0, wal_flushes=None)).flushes_per_commit is None


def test_metrics_of_cloudwatch_count_by_the_seconds_of_the_runs() -> None:
    """A run of 90 s fills a minute and half of the next, whose metrics another run shares."""
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    minutes = [at + number * timedelta(minutes=1) for number in range(3)]
    rows: list[CounterRow] = [
        {"measured_at": each.isoformat(), "period_s": 60, "CPUUtilization": cpu}
        for each, cpu in zip(minutes, (50.0, 80.0, 5.0), strict=True)
    ]
    late: CounterRow = {**rows[0], "CommitLatency": 2.0}
    metrics, share = match_metrics([*rows, late], [_use(1, 1, 90.0, began_at_s=at.timestamp())])
    assert dict(metrics) == {"CPUUtilization": pytest.approx(60.0), "CommitLatency": 2.0}
    assert share == pytest.approx(0.75)
    assert match_metrics(rows, [_use(1, 1, 90.0)]) == ((), None)


def test_all_rows_are_inserted_in_each_batch_size_if_their_number_is_given() -> None:
    """Also one by one, however long it takes."""
    sizes = plan_sizes(measure_all(2_500), row_s=1.0, commit_s=100.0)
    assert [(size.rows_per_commit, size.is_scaled) for size in sizes] == [
        (size, False) for size in (2_500, 1_000, 100, 10, 1)
    ]
    assert measure_all(2_500).check_rows == 2_000


@pytest.mark.part("rest")
def test_rows_and_commits_add_up_on_every_version(database: str) -> None:
    """The counters are reported after the call has returned. Afterwards the schema does not exist."""
    result = measure_commits(TINY, to=ConnectionFactory(database))
    (target,) = result.targets
    assert target.check.counted_rows >= target.check.rows == 3_000
    assert target.check.counted_commits >= target.check.commits == 3
    assert [(run.size.rows, len(run.runs_s)) for run in target.sizes] == [(300, 2)] * 3
    assert all(run.bare_s for run in target.sizes)
    assert _schema_count(database) == 0


@pytest.mark.part("rest")
def test_processors_that_are_busy_during_the_procedure_are_measured(database18: str) -> None:
    """The article's open question: beside the samples of each length, on this machine's processors."""
    sweep = replace(TINY, rows=200_000, rows_per_commit=(200_000, 100_000), rounds=1)
    (target,) = measure_commits(sweep, to=ConnectionFactory(database18)).targets
    for run in target.sizes:
        backend, server, machine = (run.busy(what) for what in ("backend_cpu_s", "server_cpu_s", "machine_cpu_s"))
        assert backend is not None
        assert server is not None
        assert machine is not None
        assert 0 < backend <= server * 1.1
        assert server <= 1.1 * read_machine().cpu_count
        assert machine > 0
    assert use_rows(target)[0][1] == f"{target.sizes[0].busy('backend_cpu_s'):.2f}"


@pytest.mark.part("rest")
@pytest.mark.parametrize("major", [16, 18])
def test_each_commit_flushes_wal_once(new_server: Callable[..., EmbeddedServer], major: int) -> None:
    """Beside what other processes flush; a row and a commit write more than 100 bytes."""
    server = new_server(major, fsync="on")
    (target,) = measure_commits(replace(TINY, rounds=0), to=ConnectionFactory(server.ensure_running())).targets
    single = target.sizes[-1]
    assert single.flushes_per_commit is not None
    assert single.wal_bytes_per_commit is not None
    assert 0.9 <= single.flushes_per_commit <= 1.5
    assert single.wal_bytes_per_commit > 100


def test_a_volume_is_refused_for_a_server_of_the_user() -> None:
    """It has its own."""
    with pytest.raises(UsageError, match="--volume needs a topology"):
        commits(to="host=x", volume=["gp2:250GiB"])


@pytest.mark.part("rest")
def test_servers_on_volumes_stand_beside_a_quorum_without(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As RDS on EBS beside Aurora."""
    try:
        check_machine("this test", PACKAGES)
    except LabError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PENSTOCK_HOME", str(servers.new_home()))
    volumes = ("gp3:1GiB:1000:125", "unlimited@5ms")
    result = measure_commits(TINY, shapes=("single", "multi-az", "quorum"), volumes=volumes)
    names = [f"{shape} on {volume}" for shape in ("single", "multi-az") for volume in volumes]
    assert [target.name for target in result.targets] == [*names, "quorum"]
    # Each commit of a single row waits for one flush at least.
    for target in result.targets:
        if target.name.endswith("@5ms"):
            assert target.sizes[-1].uses[0].elapsed_s >= 300 * 0.005


@pytest.mark.part("rest")
def test_each_commit_of_a_quorum_whose_zones_are_distant_waits_for_them(
    servers: ServerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back; one server alone has no zones."""
    monkeypatch.setenv("PENSTOCK_HOME", str(servers.new_home()))
    result = measure_commits(TINY, shapes=("single", "quorum"), zone_latency_s=0.002)
    assert [target.name for target in result.targets] == ["single", "quorum, zones 2 ms away"]
    assert result.targets[1].sizes[-1].uses[0].elapsed_s >= 300 * 2 * 0.002


def test_somebody_elses_schema_is_refused_and_stays(database18: str) -> None:
    """Only the comment makes it ours."""
    with psycopg.connect(database18, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
    with pytest.raises(TargetError, match="was not created by penstock"):
        measure_commits(TINY, to=ConnectionFactory(database18))
    assert _schema_count(database18) == 1


def test_two_experiments_in_one_database_are_refused(database18: str) -> None:
    """The second would drop what the first measures."""
    with experiment(ConnectionFactory(database18)), pytest.raises(ServerError, match="another penstock bench runs"):
        measure_commits(TINY, to=ConnectionFactory(database18))


def test_a_pooler_is_refused(pg18: PgServer, servers: ServerPool, database18: str) -> None:
    """Its sessions are others' too."""
    if pg18.server is None:
        pytest.skip("PgBouncer is put before embedded servers only")
    try:
        with (
            pgbouncer.pgbouncer(
                database18, servers.directory, mode="transaction", data_dir=pg18.server.data_dir
            ) as pooled,
            pytest.raises(ServerError, match="cannot measure commits through a connection pooler"),
        ):
            measure_commits(TINY, to=ConnectionFactory(pooled))
    except pgbouncer.Unavailable as reason:
        pytest.skip(f"PgBouncer: {reason}")
    assert _schema_count(database18) == 0


@pytest.mark.part("rest")
def test_a_standby_is_refused(servers: ServerPool) -> None:
    """Also where the connection string would have one."""
    lab = Lab.named("lab", servers.new_home())
    try:
        found = lab.up("cluster", default_installation(), parameters="postgres")
        standby = next(member.conninfo for member in found.members if member.kind == "standby")
        with pytest.raises(ServerError, match="cannot measure commits on a standby"):
            measure_commits(TINY, to=ConnectionFactory(f"{standby} target_session_attrs=any"))
    finally:
        lab.down()


@pytest.mark.part("rest")
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drops_the_schema(database18: str, signal_number: signal.Signals) -> None:
    """In the middle of a call, which ends with it."""
    argv = [sys.executable, "-m", "penstock", "bench", "commits", "--to", database18]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        with psycopg.connect(database18, autocommit=True) as connection:
            calls = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CALL %' AND state = 'active'"
            while connection.execute(calls).fetchone() is None:
                assert run.poll() is None, run.stderr and run.stderr.read()
                time.sleep(0.01)
        run.send_signal(signal_number)
        run.communicate()
    assert run.returncode == 130
    assert _schema_count(database18) == 0


@pytest.mark.part("rest")
def test_what_a_killed_run_left_is_replaced(database18: str) -> None:
    """It is known by its comment."""
    program = (
        f"import os\nfrom penstock_lab.bench.commits.experiment import experiment\n"
        f"from penstock.core.connect.connection import ConnectionFactory\n"
        f"with experiment(ConnectionFactory({database18!r})): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    assert _schema_count(database18) == 1
    measure_commits(TINY, to=ConnectionFactory(database18))
    assert _schema_count(database18) == 0


@pytest.mark.part("rest")
def test_a_quick_run_shows_what_small_batches_cost_and_leaves_nothing(servers: ServerPool) -> None:
    """On a quorum ten rows a commit take at least three times as long as 10,000; no process or folder stays."""
    home = servers.new_home()
    finished = run_process("bench", "commits", "--quick", "--json", environment={"PENSTOCK_HOME": str(home)})
    assert finished.code == 0, finished.err
    targets = {target["name"]: target for target in finished.object["targets"]}
    assert list(targets) == ["single", "cluster", "quorum"]
    median_s = {size["rows_per_commit"]: size["median_s"] for size in targets["quorum"]["sizes"]}
    assert median_s[10] >= 3 * median_s[10_000]
    assert targets["quorum"]["advised_rows_per_commit"] > 10
    assert finished.object["published"]["seconds"]["100"] == 373.5
    assert [path.name for path in (home / "labs").iterdir()] == [".lock"]
    left = [found.info for found in psutil.process_iter(["cmdline", "cwd"]) if str(home) in str(found.info)]
    assert left == []


def test_an_unknown_topology_is_named(tmp_path: Path) -> None:
    """Before anything is brought up."""
    finished = run_process("bench", "commits", "--topology", "multi-az", environment={"PENSTOCK_HOME": str(tmp_path)})
    assert finished.code == 2
    assert 'unknown topology "multi-az"' in finished.err
    assert not list(tmp_path.iterdir())


def test_samples_are_divided_as_the_article_does() -> None:
    """Without a wait, writing the log, and waiting for a commit in any of its ways and spellings."""
    size = Size(rows_per_commit=1, rows=1, total_rows=1)
    waits = (("CPU", 5), ("IO:WALWrite", 1), ("IO:WalSync", 1), ("IPC:SyncRep", 2), ("LWLock:BufferContent", 1))
    assert SizeResult(size=size, runs_s=(1.0,), waits=waits).shares == (0.5, 0.1, 0.3)
    assert SizeResult(size=size, runs_s=(1.0,)).shares is None
    published = plan.published_shares(100)
    assert published is not None
    assert published[2] == pytest.approx(776 / 1049)
