"""`penstock bench optimized-reads`: how it is scaled, what its figures come to, and its shape on the lab's volumes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from penstock.bench.optimized_reads.chart import chart
from penstock.bench.optimized_reads.plan import (
    FULL,
    QUICK,
    QueryRuns,
    Step,
    as_loaded,
    published_speed_up,
    queries,
    scale,
)
from penstock.bench.optimized_reads.run import ReadsResult, TargetResult
from penstock.cli.commands.bench.optimized_reads import as_object, describe_reads, optimized_reads
from penstock.errors import LabError, UsageError
from penstock.host import read_machine
from penstock.lab.volumes.find import check_machine


def runs(name: str, volume: float, local: float) -> QueryRuns:
    return QueryRuns(
        query=name,
        volume_s=(volume, 3 * volume, 2 * volume),
        local_s=(local, local, local),
        temp_bytes=10**9,
        workers_planned=4,
        workers_launched=2,
        volume_busy=0.5,
        volume_queue=3.0,
    )


STEP = Step(sessions=4, runs=(runs("a", 1.0, 1.0), runs("b", 2.0, 0.5)))


def test_rates_scale_by_cores_and_memory_by_rows() -> None:
    scaled = scale(FULL, cpu_count=2)
    assert (scaled.iops, scaled.bytes_per_s) == (625, 74_218_750)
    assert scaled.memory_bytes == round(64 * 1024**3 / 100)
    assert scaled.volume == "gp3:6GiB:625:71"
    assert scale(QUICK, cpu_count=16).iops == 5_000


def test_limits_of_the_queries_scale_with_the_rows() -> None:
    distinct, group, order = (query.sql for query in queries(QUICK, schema="s"))
    assert distinct == "SELECT DISTINCT pad FROM s.sbtest1 LIMIT 260000"
    assert "FROM s.sbtest2 LIMIT 400000" in group
    assert order.endswith("FROM s.sbtest3 ORDER BY pad LIMIT 200000")


def test_a_step_is_the_sum_of_its_queries_round_by_round() -> None:
    assert STEP.volume_s == (3.0, 9.0, 6.0)
    assert STEP.local_s == (1.5, 1.5, 1.5)
    assert STEP.speed_up == 4.0
    assert STEP.temp_bytes == 2 * 10**9


def test_published_figures_are_the_articles_and_compared_by_core() -> None:
    assert published_speed_up(4) == pytest.approx(1.066, abs=0.001)
    assert published_speed_up(5) is None
    assert published_speed_up(as_loaded(1, cpu_count=2)) == pytest.approx(1.333, abs=0.001)


def test_result_is_shown_with_both_published_columns_and_drawn() -> None:
    target = TargetResult(name="single", postgresql="18.4", steps=(STEP,))
    result = ReadsResult(experiment=FULL, machine=read_machine(), scaled=scale(FULL, cpu_count=2), targets=(target,))
    text = "\n".join(describe_reads(result))
    assert "volume: 625 IOPS, 74 MB/s" in text
    assert "4.00       1.07" in text
    (line, published) = chart(result).lines
    assert [(point.x, point.median) for point in line.points] == [(4 / result.machine.cpu_count, 4.0)]
    assert published.is_published
    steps = json.loads(json.dumps(as_object(result)))["targets"][0]["steps"]
    assert steps[0]["speed_up"] == 4.0


def test_options_that_cannot_go_together_are_refused() -> None:
    with pytest.raises(UsageError, match="--against needs --to"):
        optimized_reads(against="host=x")
    with pytest.raises(UsageError, match='unknown topology "quorum"'):
        optimized_reads(topology="quorum")
    with pytest.raises(UsageError, match='invalid value "1,none" for --sessions'):
        optimized_reads(sessions="1,none")


def _missing() -> str | None:
    try:
        check_machine("this test", ["qemu-storage-daemon", "mkfs.ext4", "mount", "umount", "setpriv"])
    except LabError as error:
        return str(error.message)
    return None


@pytest.mark.timeout(600)
def test_the_gain_grows_with_the_sessions() -> None:
    """The published shape, with real volumes: more at the highest number of sessions than at the lowest."""
    if (why := _missing()) is not None:
        pytest.skip(why)
    argv = [sys.executable, "-m", "penstock", "bench", "optimized-reads", "--quick", "--json"]
    shown = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    (target,) = json.loads(shown.stdout)["targets"]
    gains = [step["speed_up"] for step in target["steps"]]
    assert gains[-1] > gains[0]
    assert gains[-1] > 1.2
    assert all(step["temp_bytes"] > 50_000_000 for step in target["steps"])
