"""What the bulk load experiment makes of its runs: the scale, the bottleneck, the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.recorded import read_bulk_load

from penstock.core.errors import LabError, UsageError
from penstock.core.host import machine
from penstock.core.host.machine import read_machine
from penstock.core.units import GIB, MIB
from penstock.core.values.device import VolumeLimits
from penstock_lab.bench.bulk_load.plan import (
    FIRST,
    LARGE,
    PROVISIONED,
    SETTLED,
    STEPS,
    BulkLoadRun,
    Recovery,
    StepRuns,
    choose_steps,
    find_bottlenecks,
    find_spread,
    judge,
    scale,
    steps_without_volumes,
    summarize_minutes,
)
from penstock_lab.bench.bulk_load.run import BulkLoadResult, BulkLoadTargetResult
from penstock_lab.bench.bulk_load.table import (
    LOAD_HEADING,
    as_object,
    chart,
    describe_rounds,
    load_rows,
    recovery_rows,
    settled_rows,
    time_rows,
)
from penstock_lab.bench.command import bulk_load, describe_bulk_load
from penstock_lab.bench.ways import check_rows
from penstock_lab.datasets.datafiles import DataFile

FILE = DataFile(table="title.principals", path=Path("x.gz"), rows=3, plain_bytes=60, size_bytes=36_100_000)
LIMITS = VolumeLimits(iops=1_000, bytes_per_s=100 * MIB, instance_bytes_per_s=50 * MIB)
RUN = BulkLoadRun(
    seconds=2.0,
    began_at="2026-11-29T10:00:30+00:00",
    rows=3,
    samples=40,
    sessions=2.0,
    waits=(("IO:WalSync", 0.6), ("CPU", 0.4)),
    code="volume-iops",
    claim="60 % of active time waits",
    peak_queue=9.0,
    mean_queue=3.0,
    ios_per_s=950.0,
    bytes_per_s=10.0 * MIB,
    peak_bytes_per_s=20.0 * MIB,
    cpu=0.3,
    peak_cpu=0.9,
)


def result() -> BulkLoadResult:
    """Return three rounds of the article's steps; each step is as fast as the step before."""
    runs = tuple(replace(RUN, seconds=seconds) for seconds in (2.0, 60.0, 1.0))
    crashed = (Recovery(wal_bytes=10_000_000, seconds=1.0), Recovery(wal_bytes=20_000_000, seconds=3.0))
    steps = tuple(
        StepRuns(step=step, limits=LIMITS, runs=runs, recoveries=crashed if step.crashes else ()) for step in STEPS
    )
    return BulkLoadResult(
        rounds=3,
        machine=read_machine(),
        scaled=scale([FILE], cpu_count=2, machine_bytes=64 * GIB),
        rows=3,
        plain_bytes=60,
        size_bytes=40,
        is_imdbs=False,
        targets=(BulkLoadTargetResult(name="single", postgresql="18.4", schema="staging", steps=steps),),
    )


def test_rates_scale_by_cores_and_data_memory_and_wal_by_the_file() -> None:
    """Two of 8 vCPUs, and a tenth of the article's file; what the instance passes limits the volume."""
    scaled = scale([FILE], cpu_count=2, machine_bytes=64 * GIB)
    assert (scaled.rate_scale, scaled.data_scale) == (0.25, 0.1)
    assert scaled.memory_bytes == round(6.4 * GIB)
    assert scaled.max_wal_bytes == round(204.8 * MIB)
    assert [scaled.volume(volume) for volume in (FIRST, LARGE, PROVISIONED)] == [
        "gp3:12GiB:188:62",
        "gp3:12GiB:1125:142",
        "gp3:12GiB:2500:142",
    ]


def test_memory_is_at_most_the_machines() -> None:
    """Data may be larger than a tenth of the article's on a machine with less memory."""
    assert scale([FILE], cpu_count=2, machine_bytes=GIB).memory_bytes == GIB


@pytest.mark.parametrize(
    ("change", "found", "is_named"),
    [
        ({}, ("IOPS",), True),
        ({"code": "cpu-bound"}, ("IOPS",), False),
        ({"ios_per_s": 500.0, "bytes_per_s": 49.0 * MIB, "code": "instance-limit"}, ("throughput",), True),
        ({"ios_per_s": 500.0, "cpu": 0.95, "code": "load-server-cpu"}, ("CPU",), True),
        ({"ios_per_s": 500.0, "cpu": 0.95, "code": None}, ("CPU",), False),
        ({"ios_per_s": 500.0}, (), None),
        ({"mean_queue": 0.4}, (), None),
        ({"ios_per_s": None, "bytes_per_s": None}, (), None),
        ({"sessions": 1.0, "waits": (("CPU", 0.9),), "ios_per_s": 1.0, "code": "few-sessions"}, ("one session",), True),
    ],
)
def test_a_diagnosis_is_held_against_the_counters(
    change: dict[str, object], found: tuple[str, ...], is_named: bool | None
) -> None:
    """The resource that was used up, and whether the diagnosis names it; nothing used up is no judgement."""
    run = replace(RUN, **change)  # type: ignore[arg-type]
    assert find_bottlenecks(run, LIMITS) == found
    assert judge(run, LIMITS) is is_named


def test_two_limits_are_both_shown_the_nearer_first() -> None:
    """Either explains the run."""
    assert find_bottlenecks(replace(RUN, cpu=0.9), LIMITS) == ("IOPS", "CPU")


def test_one_slow_run_does_not_move_the_median() -> None:
    """A disturbed run is not what a step takes."""
    (target,) = result().targets
    assert time_rows(target)[1][2:7] == ("3", "2.00", "1.00", "60.00", "1.00")


def test_tables_have_the_articles_figures_beside_ours() -> None:
    """Its seconds, its multiples and its queue; what it does not have is a dash."""
    (target,) = result().targets
    assert [row[7:] for row in time_rows(target)[:3]] == [("345", "1.00"), ("62", "0.18"), ("62", "0.18")]
    first = load_rows(target)[0]
    assert first[1:11] == ("950", "1,000", "10.5", "21.0", "52", "3.0", "9.0", "2,048", "30%", "90%")
    assert first[11:14] == ("IOPS", "volume-iops", "yes")
    assert load_rows(target)[4][LOAD_HEADING.index("published")] == "-"
    assert [row[1:3] for row in recovery_rows(target)] == [("15", "2.00"), ("15", "2.00")]


def test_steps_until_nothing_is_left_to_be_written_are_compared_with_psqls() -> None:
    """Seconds, and the bytes that the volume moved: 2 s at 10 MiB/s."""
    (target,) = result().targets
    assert settled_rows(target) == [(step.name, "2.00", "1.00", "21", "1.00") for step in STEPS if step.load in SETTLED]
    assert all(step.is_one_file for step in STEPS if step.is_settled)


def test_what_differs_from_the_article_is_said() -> None:
    """For each step, and for the import."""
    text = "\n".join(describe_bulk_load(result()))
    assert "the burst bucket is spent" in text
    assert "from 57 to 44 s" in text


def test_every_published_step_is_an_import_by_the_server() -> None:
    """In the article's order; its gain by settings can be read for one file, and for the seven."""
    of_article = [step for step in STEPS if step.published_s is not None]
    assert [step.published_s for step in of_article] == [345, 62, 62, 129, 57, 44]
    assert all(step.is_import for step in of_article)
    pairs = [(step.load, step.is_one_file) for step in STEPS if step.is_import and step.has_settings]
    without = [(step.load, step.is_one_file) for step in STEPS if step.volume == PROVISIONED and not step.has_settings]
    assert pairs == [("aws_s3 in turn", True), ("aws_s3 in turn", False), ("aws_s3 in parallel", False)]
    assert set(pairs) < set(without)


def test_a_server_of_the_user_has_the_same_steps_with_s3_and_psqls_without() -> None:
    """One file, the seven in each way, and penstock; without S3 the settings are tried by penstock alone."""
    loads = [(step.load, step.is_one_file, step.has_settings) for step in steps_without_volumes(has_s3=True)]
    assert loads == [
        *((load, one, False) for load, one in (("aws_s3 in turn", True), ("aws_s3 in turn", False))),
        ("aws_s3 in parallel", False, False),
        *((load, one, True) for load, one in (("aws_s3 in turn", True), ("aws_s3 in turn", False))),
        ("aws_s3 in parallel", False, True),
        ("penstock", False, False),
        ("penstock", False, True),
    ]
    assert [step.load for step in steps_without_volumes(has_s3=False)] == [
        *("psql in turn", "psql in turn", "psql in parallel", "penstock", "penstock")
    ]


def test_a_step_whose_times_differ_runs_more_often() -> None:
    """As its median says less."""
    assert find_spread([replace(RUN, seconds=seconds) for seconds in (1.0, 1.1, 1.2)]) == pytest.approx(0.2 / 1.1)
    assert "7 of steps" not in describe_rounds(result())
    (target,) = result().targets
    wide = replace(target.steps[0], runs=(RUN,) * 7)
    shown = replace(result(), targets=(replace(target, steps=(wide, *target.steps[1:])),))
    assert describe_rounds(shown) == "medians of 3 interleaved rounds, 7 of steps whose times differ by more than 20%"


def test_the_figures_of_an_instance_are_those_of_the_runs_minutes() -> None:
    """The mean of the minutes, the highest of a minute; another minute's are of another run."""
    names = ("DiskQueueDepth", "ReadIOPS", "WriteIOPS", "ReadThroughput", "WriteThroughput", "CPUUtilization")

    def rows(*values: float) -> list[dict[str, object]]:
        minutes = ("2026-11-29T10:00:00+00:00", "2026-11-29T10:01:00+00:00", "2026-11-29T10:02:00+00:00")
        return [{"measured_at": at, **dict.fromkeys(names, value)} for at, value in zip(minutes, values, strict=True)]

    run = replace(RUN, seconds=60.0)
    found = summarize_minutes(rows(10, 30, 99), rows(20, 50, 99), run)
    assert (found.mean_queue, found.peak_queue, found.ios_per_s) == (20, 50, 40)
    assert (found.bytes_per_s, found.peak_bytes_per_s, found.cpu, found.peak_cpu) == (40, 100, 0.2, 0.5)
    assert summarize_minutes([], [], run).peak_queue is None


def test_a_result_is_read_back_from_its_object_and_drawn() -> None:
    """So that a record's tables and plot can be computed again."""
    made = result()
    assert read_bulk_load(json.loads(json.dumps(as_object(made)))) == made
    measured, published = chart(made).lines
    assert [point.x for point in measured.points] == list(range(1, len(STEPS) + 1))
    assert [point.x for point in published.points] == [1, 2, 3, 4, 5, 6]


def test_given_volumes_take_the_place_of_the_articles() -> None:
    """One file on each, the rest on the last."""
    steps = choose_steps(["gp3:500GiB:12000:500", "io2:500GiB:30000"])
    assert [step.name for step in steps[:2]] == ["one file, gp3:500GiB:12000:500", "one file, io2:500GiB:30000"]
    assert {step.volume for step in steps[2:]} == {"io2:500GiB:30000"}
    assert [step.published_s for step in steps[:2]] == [None, None]


@pytest.mark.parametrize("volume", ["gp2:250GiB", "unlimited"])
def test_volumes_without_fixed_limits_are_refused(volume: str) -> None:
    """A bucket of bursts does not scale; a spent one has the rate of its size."""
    with pytest.raises(UsageError, match="has no fixed limits to scale"):
        choose_steps([volume])
    assert choose_steps(["gp2:250GiB:spent"])[0].volume == "gp2:250GiB:spent"


def test_options_that_cannot_go_together_are_refused() -> None:
    """A server of the user has its own volumes; a volume has a form, and limits."""
    with pytest.raises(UsageError, match="--volume needs a topology"):
        bulk_load(to="host=x", volume=["gp2:250GiB"])
    with pytest.raises(UsageError, match="--s3 needs --to"):
        bulk_load(s3="s3://b")
    with pytest.raises(UsageError, match="not a valid volume"):
        bulk_load(volume=["gp9"])
    with pytest.raises(UsageError, match='unknown topology "quorum"'):
        bulk_load(topology=["quorum"])


def test_missing_rows_are_an_error_that_names_the_file() -> None:
    """A way that loses rows has no time worth showing."""
    with pytest.raises(LabError, match=r'"psql" did not load every row of title\.principals'):
        check_rows("psql", {"title_principals": 2}, [FILE])


def test_text_without_the_line_has_no_cpu_model() -> None:
    """As on processors of ARM."""
    assert machine.parse_cpu_model("processor : 0\n") is None
