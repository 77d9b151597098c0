"""Shows a result: as tables beside the article's figures, as a plot, and as an object for JSON. Pure.

benchmarks/recorded.py reads the object back. Package report draws the plot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING

from penstock.core.units import MB, format_count
from penstock_lab.bench.bulk_load.plan import (
    RECOVERY,
    SHORT_SOURCE,
    SOURCE,
    WIDE_SPREAD,
    BulkLoadRun,
    StepRuns,
    find_bottlenecks,
    judge,
)
from penstock_lab.bench.plot import Line, Plot, Point

if TYPE_CHECKING:
    from penstock_lab.bench.bulk_load.run import BulkLoadResult, BulkLoadTargetResult

TIME_HEADING = (
    "step",
    "rows",
    "runs",
    "seconds",
    "min",
    "max",
    "of the first",
    "published s",
    "of the first",
)

LOAD_HEADING = (
    "step",
    "IOPS",
    "of",
    "MB/s",
    "peak",
    "of",
    "queue",
    "peak",
    "published",
    "CPU",
    "peak",
    "at its limit",
    "diagnosis",
    "names it",
    "top waits",
)

RECOVERY_HEADING = ("killed after", "MB of WAL to replay", "recovery s", "min", "max")

SETTLED_HEADING = ("until nothing is left to be written", "seconds", "of psql's", "MB of I/O", "of psql's")


def describe_rounds(result: BulkLoadResult) -> str:
    """Return how many rounds ran, as words."""
    most = max(len(each.runs) for target in result.targets for each in target.steps)
    rounds = "1 round" if result.rounds == 1 else f"medians of {result.rounds} interleaved rounds"
    more = f", {most} of steps whose times differ by more than {WIDE_SPREAD:.0%}"
    return rounds + (more if most > result.rounds else "")


def time_rows(target: BulkLoadTargetResult) -> list[tuple[str, ...]]:
    """Return the rows below TIME_HEADING: medians with lowest and highest, and multiples of the first step's time."""
    first = target.steps[0]
    return [
        (
            each.step.name,
            format_count(each.median.rows),
            str(len(each.runs)),
            f"{each.seconds:.2f}",
            f"{min(run.seconds for run in each.runs):.2f}",
            f"{max(run.seconds for run in each.runs):.2f}",
            f"{each.seconds / first.seconds:.2f}",
            _known(each.step.published_s, "{:.0f}"),
            _published_multiple(each, first),
        )
        for each in target.steps
    ]


def _published_multiple(each: StepRuns, first: StepRuns) -> str:
    ours, theirs = each.step.published_s, first.step.published_s
    return "-" if ours is None or theirs is None else f"{ours / theirs:.2f}"


def load_rows(target: BulkLoadTargetResult) -> list[tuple[str, ...]]:
    """Return the rows below LOAD_HEADING. Each row has the figures of the step's run with the median time."""
    return [_load_row(each) for each in target.steps]


def _load_row(each: StepRuns) -> tuple[str, ...]:
    run, limits = each.median, each.limits
    most = (
        None if limits is None else min(filter(None, (limits.bytes_per_s, limits.instance_bytes_per_s)), default=None)
    )
    named = judge(run, limits)
    return (
        each.step.name,
        _known(run.ios_per_s, "{:,.0f}"),
        _known(None if limits is None else limits.iops, "{:,.0f}"),
        *(_known(None if rate is None else rate / MB, "{:.1f}") for rate in (run.bytes_per_s, run.peak_bytes_per_s)),
        _known(None if most is None else most / MB, "{:.0f}"),
        _known(run.mean_queue, "{:.1f}"),
        _known(run.peak_queue, "{:.1f}"),
        _known(each.step.published_queue, "{:,.0f}"),
        _known(run.cpu, "{:.0%}"),
        _known(run.peak_cpu, "{:.0%}"),
        ", ".join(find_bottlenecks(run, limits)) or "nothing",
        run.code or "none",
        "-" if named is None else "yes" if named else "no",
        ", ".join(f"{name} {share:.0%}" for name, share in run.waits),
    )


def recovery_rows(target: BulkLoadTargetResult) -> list[tuple[str, ...]]:
    """Return the rows below RECOVERY_HEADING: medians with lowest and highest."""
    return [
        (
            each.step.name,
            f"{median(one.wal_bytes for one in each.recoveries) / MB:,.0f}",
            *(f"{choose(one.seconds for one in each.recoveries):.2f}" for choose in (median, min, max)),
        )
        for each in target.steps
        if each.recoveries
    ]


def settled_rows(target: BulkLoadTargetResult) -> list[tuple[str, ...]]:
    """Return the rows below SETTLED_HEADING: medians, and what the volume has read and written in the median run."""
    found = [each for each in target.steps if each.step.is_settled]
    return [
        (
            each.step.name,
            f"{each.seconds:.2f}",
            f"{each.seconds / found[0].seconds:.2f}",
            _known(_moved_mb(each), "{:,.0f}"),
            _known(_moved_mb(each, over=_moved_mb(found[0])), "{:.2f}"),
        )
        for each in found
    ]


def _moved_mb(each: StepRuns, over: float | None = 1.0) -> float | None:
    rate = each.median.bytes_per_s
    return None if rate is None or not over else rate * each.median.seconds / MB / over


def caveats(result: BulkLoadResult) -> Iterator[str]:
    """Yield a sentence for each difference between a result and the article, and for what the result does not show."""
    if any(each.step.is_import for target in result.targets for each in target.steps):
        yield (
            "Imports are the article's own call: FORMAT csv takes \\N for text and removes quotes. On a lab the"
            " functions are penstock's stand-in, which shares the processors with the server."
        )
    else:
        yield "The article imports inside the server, from S3; here psql or penstock sends the files."
    for target in result.targets:
        if target.lacks is not None:
            yield f"Steps with settings did not run on {target.name}: {target.lacks}"
    steps = {each.step.name: each.step for target in result.targets for each in target.steps}
    for step in steps.values():
        facts = [f"the article has {step.published}" if step.published else "", step.differs]
        if any(facts):
            yield f"{step.name}: {'; '.join(filter(None, facts))}."
    if not result.is_imdbs:
        yield "The files are made up in the shape of IMDb's; --files loads IMDb's own."
    if any(each.recoveries for target in result.targets for each in target.steps):
        yield (
            f"Recovery: the article says that a {RECOVERY}. Here WAL is read from the page cache, which a crash of the "
            "machine would empty."
        )
    yield (
        "Rates, queue and CPU are means of the run of the median time; peak is the mean of the worst second, of Amazon"
        " RDS the maximum of a minute (queue: DiskQueueDepth, in Enhanced Monitoring rdsdev.avgQueueLen)."
    )
    if any(each.step.has_settings for target in result.targets for each in target.steps):
        yield "Settings are changed before the time that counts, and restored after it."
    yield (
        "At its limit: at least 80 % used by the counters, of a volume while requests wait for it; one session: it "
        "computes or waits for its client for two thirds of its time."
    )
    yield "The diagnosis rests on the samples, as on any server."


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def chart(result: BulkLoadResult) -> Plot:
    """Return the plot of a result. The steps are numbered in their order, and named below the plot."""
    machine, steps = result.machine, result.targets[0].steps
    versions = ", ".join(sorted({target.postgresql for target in result.targets}))
    names = "; ".join(f"{number} {each.step.name}" for number, each in enumerate(steps, start=1))
    measured = (
        f"Measured: PostgreSQL {versions}; {result.rows:,} rows, {describe_rounds(result)}, shaded from lowest "
        f"to highest. Client, and servers of a lab, on {machine.cpu_model}, {machine.cpu_count} cores."
    )
    return Plot(
        title="Loading IMDb's files: seconds of each step as a multiple of the first",
        x_label="step",
        y_label="seconds, as a multiple of the first step's",
        lines=(*map(_line, result.targets), *_published_lines(result.targets[0])),
        notes=(f"Steps: {names}.", measured, f"Published, not measured here: {SOURCE}."),
    )


def _line(target: BulkLoadTargetResult) -> Line:
    first_s = target.steps[0].seconds
    points = (
        Point.of(number, [run.seconds for run in each.runs], unit=first_s)
        for number, each in enumerate(target.steps, start=1)
    )
    return Line(name=target.name, points=tuple(points))


def _published_lines(target: BulkLoadTargetResult) -> list[Line]:
    first_s = target.steps[0].step.published_s
    if first_s is None:
        return []
    known = ((number, each.step.published_s) for number, each in enumerate(target.steps, start=1))
    points = [Point.of(number, [seconds], unit=first_s) for number, seconds in known if seconds is not None]
    return [Line(name=f"published: {SHORT_SOURCE}", points=tuple(points), is_published=True)]


def as_object(result: BulkLoadResult) -> dict[str, object]:
    """Return what --json prints of a result."""
    fields = asdict(result)
    fields["targets"] = [
        {
            "name": target.name,
            "postgresql": target.postgresql,
            "schema": target.schema,
            "lacks": target.lacks,
            "steps": [_step(each) for each in target.steps],
        }
        for target in result.targets
    ]
    fields["caveats"] = list(caveats(result))
    fields["published"] = {"source": SOURCE}
    return fields


def _step(each: StepRuns) -> dict[str, object]:
    return {
        "step": asdict(each.step),
        "limits": None if each.limits is None else asdict(each.limits),
        "median_s": each.seconds,
        "runs": [_run(run, each) for run in each.runs],
        "recoveries": [asdict(recovery) for recovery in each.recoveries],
    }


def _run(run: BulkLoadRun, each: StepRuns) -> dict[str, object]:
    judgement = {"at_limit": find_bottlenecks(run, each.limits), "is_named": judge(run, each.limits)}
    return {**asdict(run), "waits": dict(run.waits), **judgement}
