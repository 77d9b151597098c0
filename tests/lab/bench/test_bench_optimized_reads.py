"""`penstock bench optimized-reads`: how it is scaled, what its figures come to, and its shape on the lab's volumes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from benchmarks.recorded import read_optimized_reads

from penstock.core.errors import LabError, UsageError
from penstock.core.host.machine import read_machine
from penstock.core.values.device import Device
from penstock_lab.bench.command import describe_reads, optimized_reads
from penstock_lab.bench.optimized_reads.plan import (
    FULL,
    QUICK,
    QueryDeviceUse,
    QueryRuns,
    ReadsExperiment,
    ReadsStep,
    as_loaded,
    published_speed_up,
    published_temp_bytes,
    queries,
    scale,
    typical_s,
)
from penstock_lab.bench.optimized_reads.run import ReadsResult, ReadsTargetResult
from penstock_lab.bench.optimized_reads.table import (
    ALL,
    NO_DIFFERENCE,
    SPILLS_NOTHING,
    as_object,
    caveats,
    chart,
    io_rows,
    time_rows,
)
from penstock_lab.bench.plot import draw_plot
from penstock_lab.volumes import check_machine

if TYPE_CHECKING:
    from pathlib import Path


def runs(name: str, volume: float, local: float, *, temp_bytes: int = 10**9) -> QueryRuns:
    return QueryRuns(
        query=name,
        volume_s=(volume, 3 * volume, 2 * volume, 2 * volume),
        local_s=(local, local, local, local),
        temp_bytes=temp_bytes,
        workers_planned=4,
        workers_launched=2,
        volume=QueryDeviceUse(read_bytes=1e9, write_bytes=2e9, busy=0.5, queue=3.0),
    )


STEP = ReadsStep(sessions=4, runs=(runs("a", 1.0, 0.9), runs("b", 2.0, 0.1)))


def _result(*targets: ReadsTargetResult) -> ReadsResult:
    experiment = ReadsExperiment(rows=1_000_000, sessions=(4,), rounds=4)
    return ReadsResult(
        experiment=experiment,
        machine=replace(read_machine(), cpu_count=2),
        scaled=scale(experiment, cpu_count=2),
        targets=targets,
    )


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
    assert STEP.volume_s == (3.0, 9.0, 6.0, 6.0)
    assert STEP.local_s == (1.0, 1.0, 1.0, 1.0)
    assert STEP.speed_up == 6.0
    assert STEP.temp_bytes == 2 * 10**9


def test_rounds_of_either_order_count_equally() -> None:
    """The side that is first is slower: of three rounds a median has that of the side that was first twice."""
    assert typical_s([9.0, 1.0, 8.0]) == typical_s([9.0, 1.0, 8.0, 1.0])
    assert all(experiment.rounds % 2 == 0 for experiment in (FULL, QUICK))
    for experiment in (FULL, QUICK):
        assert experiment.first_sides.count("volume") == experiment.first_sides.count("local")


def test_a_query_that_spills_nothing_is_left_out_of_the_sum(tmp_path: Path) -> None:
    """Where temporary files are cannot matter to it. If no query spills, there is no sum and no point in the plot."""
    inside = runs("c", 100.0, 100.0, temp_bytes=0)
    with_it, without = (
        replace(STEP, runs=(*STEP.runs, inside)),
        ReadsTargetResult(name="single", postgresql="18.4", steps=(ReadsStep(sessions=1, runs=(inside,)),)),
    )
    assert (with_it.volume_s, with_it.speed_up) == (STEP.volume_s, STEP.speed_up)
    assert [row[1] for row in time_rows(without, _result(without))] == ["c"]
    assert time_rows(without, _result(without))[0][8] == SPILLS_NOTHING
    assert chart(_result(without)).lines[0].points == ()
    for number, result in enumerate((_result(without), replace(_result(without), scaled=None))):
        draw_plot(tmp_path / f"{number}.svg", chart(result))
    assert json.loads(json.dumps(as_object(_result(without))))["targets"][0]["steps"][0]["speed_up"] is None


def test_spreads_that_overlap_are_no_difference() -> None:
    """A round on the local disk was as slow as one on the volume."""
    target = ReadsTargetResult(
        name="single", postgresql="18.4", steps=(ReadsStep(sessions=1, runs=(runs("a", 1.0, 1.5),)),)
    )
    assert {row[8] for row in time_rows(target, _result(target))} == {NO_DIFFERENCE}
    (step,) = json.loads(json.dumps(as_object(_result(target))))["targets"][0]["steps"]
    assert not step["is_difference"]


def test_published_figures_are_the_articles_and_compared_by_core() -> None:
    assert published_speed_up(4) == pytest.approx(1.066, abs=0.001)
    assert published_speed_up(5) is None
    assert published_speed_up(as_loaded(1, cpu_count=2)) == pytest.approx(1.333, abs=0.001)


def test_result_is_shown_with_both_published_columns_and_drawn() -> None:
    result = _result(ReadsTargetResult(name="single", postgresql="18.4", steps=(STEP,)))
    text = "\n".join(describe_reads(result))
    assert "volume: 625 IOPS, 74 MB/s" in text
    assert "6.00       1.07" in text
    (line, published) = chart(result).lines
    assert [(point.x, point.median) for point in line.points] == [(4 / result.machine.cpu_count, 6.0)]
    assert published.is_published
    steps = json.loads(json.dumps(as_object(result)))["targets"][0]["steps"]
    assert steps[0]["speed_up"] == 6.0
    assert steps[0]["is_difference"]


def test_a_users_server_is_not_compared_by_the_cores_of_the_client() -> None:
    """How many cores it has is not known: neither in the table, nor in JSON, nor in the plot."""
    target = ReadsTargetResult(name="host=db1", postgresql="18.4", steps=(STEP,))
    result = replace(_result(target), scaled=None)
    assert time_rows(target, result)[0][9:11] == ("1.07", "-")
    (line,) = chart(result).lines
    assert [(point.x, point.median) for point in line.points] == [(4, 6.0)]
    (step,) = json.loads(json.dumps(as_object(result)))["targets"][0]["steps"]
    assert step["published_by_core"] is None


def test_each_query_stands_by_itself_and_spills_beside_the_article() -> None:
    """With what reached the devices; 1,090 GB of 100 million rows are 10.9 GB of one million."""
    target = ReadsTargetResult(name="single", postgresql="18.4", steps=(STEP,))
    assert [row[1:3] for row in time_rows(target, _result(target))] == [(ALL, "6.0"), ("a", "2.0"), ("b", "4.0")]
    assert io_rows(target, rows=1_000_000) == [
        ("4", "2.00", "10.9", "0.18", "4.00/2.00", "50%", "3.0", "-", "-", "-", "4/8"),
    ]
    assert published_temp_bytes(5, rows=1_000_000) is None


def test_a_disk_that_never_waits_is_forecast_from_the_volume_alone() -> None:
    """The time without waits, or that of all processors, whichever is more; not known without both."""
    waits = replace(STEP.runs[0], volume_s=(10.0,), local_s=(4.0,), wait_s=(7.0,), cpu_s=(10.0,))
    step = ReadsStep(sessions=4, runs=(waits, replace(waits, query="b", wait_s=(2.0,))))
    assert step.waiting == pytest.approx(0.45)
    assert step.forecast_s(cpu_count=2) == 5.0 + 8.0
    target = ReadsTargetResult(name="single", postgresql="18.4", steps=(step,))
    shown = [row[-3:] for row in time_rows(target, _result(target))]
    assert shown == [("45%", "13.0", "1.62"), ("70%", "5.0", "1.25"), ("20%", "8.0", "2.00")]
    assert (STEP.waiting, STEP.forecast_s(cpu_count=2)) == (None, None)


def test_sides_begin_in_turn() -> None:
    """What one side leaves to write would always meet the other."""
    assert FULL.first_sides == ("volume", "local", "volume", "local")


def test_what_is_not_shown_is_said() -> None:
    """That Multi-AZ gains more: it was not measured, the spreads overlap, or they do not."""
    single = ReadsTargetResult(name="single", postgresql="18.4", steps=(STEP,))
    assert any("only single was measured" in text for text in caveats(_result(single)))
    mirrored = ReadsTargetResult(name="multi-az", postgresql="18.4", steps=(STEP,))
    assert any("the spreads overlap at 4 sessions" in text for text in caveats(_result(single, mirrored)))
    faster = ReadsTargetResult(
        name="multi-az", postgresql="18.4", steps=(ReadsStep(sessions=4, runs=(runs("a", 99.0, 1.0),)),)
    )
    assert not any("Multi-AZ" in text for text in caveats(_result(single, faster)))


def test_a_result_is_read_back_from_its_object() -> None:
    """So that a record's tables and plot can be computed again."""
    device = Device(name="loop1", number="7:1", file_system="ext4", disks=("loop1",), kind="unknown")
    result = _result(ReadsTargetResult(name="single", postgresql="18.4", steps=(STEP,), local_devices=(device,)))
    assert read_optimized_reads(json.loads(json.dumps(as_object(result)))) == result


def test_options_that_cannot_go_together_are_refused() -> None:
    with pytest.raises(UsageError, match="--against needs --to"):
        optimized_reads(against="host=x")
    with pytest.raises(UsageError, match="--to and --topology exclude each other"):
        optimized_reads(topology=["single"], to="host=db1")
    with pytest.raises(UsageError, match='unknown topology "quorum"'):
        optimized_reads(topology=["quorum"])
    with pytest.raises(UsageError, match='invalid value "1,none" for --sessions'):
        optimized_reads(sessions=["1,none"])


def test_server_whose_role_has_no_place_for_temporary_work_is_refused(database18: str) -> None:
    """Both sides would be the same tablespace."""
    with pytest.raises(UsageError, match="both places are the same: pg_default"):
        optimized_reads(quick=True, to=database18)


def _missing() -> str | None:
    try:
        check_machine("this test", ["qemu-storage-daemon", "mkfs.ext4", "mount", "umount", "setpriv"])
    except LabError as error:
        return str(error)
    return None


@pytest.mark.part("rest")
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
    assert all(0 < step["waiting"] < 1 and step["forecast_s"] > 0 for step in target["steps"])
    # Temporary files lie on a disk: what is written to them is written to the local device.
    assert [device["kind"] for device in target["local_devices"]].count("memory") == 0
    assert sum(query["local"]["write_bytes"] for query in target["steps"][-1]["queries"]) > 50_000_000
