"""The tables that show a result beside the article's figures, and what differs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING

from penstock.bench.bulk_load.plan import StepRuns, find_bottlenecks, judge
from penstock.bench.bulk_load.published import RECOVERY
from penstock.units import MB, format_count

if TYPE_CHECKING:
    from penstock.bench.bulk_load.run import BulkLoadResult, TargetResult

TIME_HEADING = (
    "step",
    "rows",
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
    "of",
    "queue",
    "peak",
    "published",
    "CPU",
    "at its limit",
    "diagnosis",
    "names it",
    "top waits",
)

RECOVERY_HEADING = ("killed after", "MB of WAL to replay", "recovery s", "min", "max")


def describe_rounds(result: BulkLoadResult) -> str:
    """Return how many rounds ran, in words."""
    return "1 round" if result.rounds == 1 else f"medians of {result.rounds} interleaved rounds"


def time_rows(target: TargetResult) -> list[tuple[str, ...]]:
    """Return the rows below TIME_HEADING: medians with lowest and highest, and multiples of the first step's time."""
    first = target.steps[0]
    return [
        (
            each.step.name,
            format_count(each.median.rows),
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


def load_rows(target: TargetResult) -> list[tuple[str, ...]]:
    """Return the rows below LOAD_HEADING, each of the run of the median time."""
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
        _known(None if run.bytes_per_s is None else run.bytes_per_s / MB, "{:.1f}"),
        _known(None if most is None else most / MB, "{:.0f}"),
        _known(run.mean_queue, "{:.1f}"),
        _known(run.peak_queue, "{:.1f}"),
        _known(each.step.published_queue, "{:,.0f}"),
        _known(run.cpu, "{:.0%}"),
        ", ".join(find_bottlenecks(run, limits)) or "nothing",
        run.code or "none",
        "-" if named is None else "yes" if named else "no",
        ", ".join(f"{name} {share:.0%}" for name, share in run.waits),
    )


def recovery_rows(target: TargetResult) -> list[tuple[str, ...]]:
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


def caveats(result: BulkLoadResult) -> Iterator[str]:
    """Yield a sentence for each thing in which a result differs from the article, and for what it does not show."""
    yield (
        "The article imports inside the server, from S3, in every step; here that is the first step"
        " of a lab, and psql or penstock sends the files in the others"
        + (" and shares the processors with the server." if result.scaled is not None else ".")
    )
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
    yield "Rates, queue and CPU are means of the run of the median time; peak is the mean of the worst second."
    yield (
        "At its limit: at least 80 % used by the counters, of a volume while requests wait for it; one session: it "
        "computes or waits for its client for two thirds of its time."
    )
    yield "The diagnosis rests on the samples, as on any server."


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
