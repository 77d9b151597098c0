"""Experiment C on real servers: what must add up, what is refused, and that nothing of it stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import LabError, ServerError, TargetError, UsageError
from penstock.core.host.machine import read_machine
from penstock.embedded.installations import default_installation
from penstock_lab.bench.command import commits
from penstock_lab.bench.commits import plan
from penstock_lab.bench.commits.plan import (
    QUICK,
    Size,
    SizeResult,
    Sweep,
    advise,
    multiples,
    plan_sizes,
    published_multiple,
)
from penstock_lab.bench.commits.run import SCHEMA, CallResult, DatabaseCounters, check_sums, experiment, measure_commits
from penstock_lab.bench.commits.table import HEADING, rows
from penstock_lab.topology.lab import Lab
from penstock_lab.volumes import PACKAGES, check_machine
from support import pgbouncer
from support.command import run_process

if TYPE_CHECKING:
    from pathlib import Path

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
        check_sums(CallResult(pid=1, elapsed_s=1.0, rows=rows, commits=commits, counted=counted), rows=300, commits=30)


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
    busy = [run.busy_cpus for run in target.sizes]
    assert all(each is not None and 0 < each <= 1.1 * read_machine().cpu_count for each in busy)
    assert rows(target)[0][HEADING.index("busy CPUs")] == f"{busy[0]:.2f}"


def test_a_volume_is_refused_for_a_server_of_the_user() -> None:
    """It has its own."""
    with pytest.raises(UsageError, match="--volume needs a topology"):
        commits(to="host=x", volume="gp2:250GiB")


@pytest.mark.part("rest")
def test_servers_on_volumes_stand_beside_a_quorum_without(servers: ServerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As RDS on EBS beside Aurora."""
    try:
        check_machine("this test", PACKAGES)
    except LabError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PENSTOCK_HOME", str(servers.new_home()))
    result = measure_commits(TINY, shapes=("single", "multi-az", "quorum"), volume="gp3:1GiB:1000:125")
    names = ["single on gp3:1GiB:1000:125", "multi-az on gp3:1GiB:1000:125", "quorum"]
    assert [target.name for target in result.targets] == names


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
        f"import os\nfrom penstock_lab.bench.commits.run import experiment\n"
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
