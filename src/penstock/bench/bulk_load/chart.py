"""The plot of a result: how many times as fast as the first step each step is, beside the article. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.bench.bulk_load.published import SHORT_SOURCE, SOURCE
from penstock.bench.bulk_load.table import describe_rounds
from penstock.report.plot import Line, Plot, Point

if TYPE_CHECKING:
    from penstock.bench.bulk_load.run import BulkLoadResult, TargetResult


def chart(result: BulkLoadResult) -> Plot:
    """Return the plot of a result. The steps are numbered in their order, and named below the plot."""
    machine, steps = result.machine, result.targets[0].steps
    versions = ", ".join(sorted({target.postgresql for target in result.targets}))
    names = "; ".join(f"{number} {each.step.name}" for number, each in enumerate(steps, start=1))
    measured = (
        f"Measured: PostgreSQL {versions}; {result.rows:,} rows, {describe_rounds(result)}, shaded from lowest "
        f"to highest. Client and servers on {machine.cpu_model}, {machine.cpu_count} cores."
    )
    return Plot(
        title="Loading IMDb's files: seconds of each step as a multiple of the first",
        x_label="step",
        y_label="seconds, as a multiple of the first step's",
        lines=(*map(_line, result.targets), *_published_lines(result.targets[0])),
        notes=(f"Steps: {names}.", measured, f"Published, not measured here: {SOURCE}."),
    )


def _line(target: TargetResult) -> Line:
    first_s = target.steps[0].seconds
    points = (
        Point(
            x=number,
            median=each.seconds / first_s,
            low=min(run.seconds for run in each.runs) / first_s,
            high=max(run.seconds for run in each.runs) / first_s,
        )
        for number, each in enumerate(target.steps, start=1)
    )
    return Line(name=target.name, points=tuple(points))


def _published_lines(target: TargetResult) -> list[Line]:
    first_s = target.steps[0].step.published_s
    if first_s is None:
        return []
    points = []
    for number, each in enumerate(target.steps, start=1):
        if (seconds := each.step.published_s) is not None:
            multiple = seconds / first_s
            points.append(Point(x=number, median=multiple, low=multiple, high=multiple))
    return [Line(name=f"published: {SHORT_SOURCE}", points=tuple(points), is_published=True)]
