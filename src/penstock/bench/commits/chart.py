"""The plot of a result: each target next to the article's measurements. Pure; report draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.bench.commits.published import SECONDS, SHORT_SOURCE, SOURCE
from penstock.bench.commits.table import describe_rounds
from penstock.report.plot import Line, Plot, Point

if TYPE_CHECKING:
    from penstock.bench.commits.run import CommitsResult, TargetResult


def chart(result: CommitsResult) -> Plot:
    """Return the plot of a result. Each line shows multiples of the time of its own largest batch."""
    machine = result.machine
    versions = ", ".join(sorted({target.postgresql for target in result.targets}))
    measured = (
        f"Measured: PostgreSQL {versions}; {result.rows:,} rows, medians of {describe_rounds(result)}, shaded from "
        "lowest to highest; hollow: fewer rows, scaled up. Points of one batch length stand side by side. Client, and "
        f"what the lab brought up, on {machine.cpu_model}, {machine.cpu_count} cores."
    )
    return Plot(
        title="Inserting the same rows with different commit sizes",
        x_label="rows per commit",
        y_label="seconds, as a multiple of the largest batch's",
        lines=(*map(_line, result.targets), _published_line()),
        notes=(measured, f"Published, not measured here: {SOURCE}."),
    )


def _line(target: TargetResult) -> Line:
    whole_s = max(target.sizes, key=lambda run: run.size.rows_per_commit).median_s
    points = (
        Point(
            x=run.size.rows_per_commit,
            median=run.median_s / whole_s,
            low=min(run.totals_s) / whole_s,
            high=max(run.totals_s) / whole_s,
            is_scaled=run.size.is_scaled,
        )
        for run in target.sizes
    )
    return Line(name=target.name, points=tuple(points))


def _published_line() -> Line:
    whole_s = SECONDS[max(SECONDS)]
    points = (
        Point(x=size, median=seconds / whole_s, low=seconds / whole_s, high=seconds / whole_s)
        for size, seconds in SECONDS.items()
    )
    return Line(name=f"published: {SHORT_SOURCE}", points=tuple(points), is_published=True)
