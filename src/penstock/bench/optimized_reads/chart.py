"""The plot of a result: speed-ups by sessions, next to the article's. Pure; report draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.bench.optimized_reads.plan import published_speed_up, speed_up_range
from penstock.bench.optimized_reads.published import MINUTES, SHORT_SOURCE, SOURCE, VCPUS
from penstock.report.plot import Line, Plot, Point

if TYPE_CHECKING:
    from penstock.bench.optimized_reads.run import ReadsResult, TargetResult


def chart(result: ReadsResult) -> Plot:
    """Return the plot of a result: how many times as fast the queries are with temporary files on a local disk."""
    machine = result.machine
    versions = ", ".join(sorted({target.postgresql for target in result.targets}))
    rounds = result.experiment.rounds
    runs = "one round" if rounds == 1 else f"medians of {rounds}"
    measured = (
        f"Measured: PostgreSQL {versions}; {result.experiment.rows:,} rows in each of three tables, {runs}, "
        f"shaded from the lowest to the highest quotient. Client and servers on "
        f"{machine.cpu_model}, {machine.cpu_count} cores."
    )
    return Plot(
        title="Queries that spill: temporary work on local disk instead of the data's volume",
        x_label="sessions for each core, all with the same query at a time",
        y_label="times as fast",
        lines=(*(_line(target, machine.cpu_count) for target in result.targets), _published_line()),
        notes=(measured, f"Published, not measured here: {SOURCE}."),
    )


def _line(target: TargetResult, cpu_count: int) -> Line:
    points = (
        Point(
            x=step.sessions / cpu_count,
            median=step.speed_up,
            low=speed_up_range(step.volume_s, step.local_s)[0],
            high=speed_up_range(step.volume_s, step.local_s)[1],
        )
        for step in target.steps
    )
    return Line(name=target.name, points=tuple(points))


def _published_line() -> Line:
    speeds = {sessions: published_speed_up(sessions) or 1.0 for sessions in MINUTES}
    points = (Point(x=sessions / VCPUS, median=speed, low=speed, high=speed) for sessions, speed in speeds.items())
    return Line(name=f"published: {SHORT_SOURCE}", points=tuple(points), is_published=True)
