"""Shows a result: as tables, as a plot beside the article's speed-ups, and as an object for JSON. Pure.

benchmarks/recorded.py reads the object back. Package report draws the plot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from penstock.core.units import GB
from penstock_lab.bench.optimized_reads.plan import (
    MINUTES,
    ROWS,
    SHORT_SOURCE,
    SOURCE,
    TEMP_GB,
    VCPUS,
    QueryDeviceUse,
    ReadsStep,
    as_loaded,
    is_difference,
    published_speed_up,
    published_temp_bytes,
    speed_up,
    speed_up_range,
    typical_s,
)
from penstock_lab.bench.plot import Line, Plot, Point

if TYPE_CHECKING:
    from penstock.core.values.device import Device
    from penstock_lab.bench.optimized_reads.run import ReadsResult, ReadsTargetResult

ALL = "all that spill"
# The text that is shown in place of a speed-up if no difference was found.
NO_DIFFERENCE = "no difference"
SPILLS_NOTHING = "spills nothing"

_MILLION = 1_000_000

TIME_HEADING = (
    "sessions",
    "query",
    "volume s",
    "min",
    "max",
    "local s",
    "min",
    "max",
    "speed-up",
    "published",
    "by core",
    "waiting",
    "forecast s",
    "of local s",
)

IO_HEADING = (
    "sessions",
    "temp GB",
    "published",
    "of it",
    "volume GB written/read",
    "busy",
    "queue",
    "local GB written/read",
    "busy",
    "disk below GB written/read",
    "workers",
)


def time_rows(target: ReadsTargetResult, result: ReadsResult) -> list[tuple[str, ...]]:
    """Return the rows below TIME_HEADING: for each step the sum of its queries that spill, then each query."""
    rows, cpu_count = [], result.machine.cpu_count
    for step in target.steps:
        if step.spilling:
            rows.append(
                (
                    str(step.sessions),
                    ALL,
                    *_times(step.volume_s, step.local_s),
                    _known(published_speed_up(step.sessions), "{:.2f}"),
                    _known(_published_by_core(step, result), "{:.2f}"),
                    *_forecast(step, cpu_count=cpu_count),
                )
            )
        for run in step.runs:
            times = _times(run.volume_s, run.local_s)
            # The article's columns are empty, because it has no times of individual queries.
            shown = times if run.temp_bytes else (*times[:-1], SPILLS_NOTHING)
            alone = ReadsStep(sessions=step.sessions, runs=(run,))
            rows.append((str(step.sessions), run.query, *shown, "-", "-", *_forecast(alone, cpu_count=cpu_count)))
    return rows


def _published_by_core(step: ReadsStep, result: ReadsResult) -> float | None:
    """Return the article's speed-up at as many sessions for each core. The cores of a user's server are not known."""
    if result.scaled is None:
        return None
    return published_speed_up(as_loaded(step.sessions, cpu_count=result.machine.cpu_count))


def _forecast(step: ReadsStep, *, cpu_count: int) -> tuple[str, ...]:
    """Return the share of the time that waits for the volume, the forecast without it, and its quotient by local s."""
    seconds = step.forecast_s(cpu_count=cpu_count)
    quotient = None if seconds is None else seconds / typical_s(step.local_s)
    return _known(step.waiting, "{:.0%}"), _known(seconds, "{:.1f}"), _known(quotient, "{:.2f}")


def io_rows(target: ReadsTargetResult, *, rows: int) -> list[tuple[str, ...]]:
    """Return the rows below IO_HEADING, for one round. The article's temporary bytes are scaled to `rows`."""
    return [_io_row(step, rows=rows) for step in target.steps]


def _io_row(step: ReadsStep, *, rows: int) -> tuple[str, ...]:
    published = published_temp_bytes(step.sessions, rows=rows)
    volume, local, below = step.use("volume"), step.use("local"), step.use("below")
    planned = sum(run.workers_planned for run in step.runs)
    launched = sum(run.workers_launched for run in step.runs)
    return (
        str(step.sessions),
        f"{step.temp_bytes / GB:.2f}",
        "-" if published is None else f"{published / GB:.1f}",
        "-" if published is None else f"{step.temp_bytes / published:.2f}",
        _traffic(volume),
        _known(None if volume is None else volume.busy, "{:.0%}"),
        _known(None if volume is None else volume.queue, "{:.1f}"),
        _traffic(local),
        _known(None if local is None else local.busy, "{:.0%}"),
        _traffic(below),
        f"{launched}/{planned}",
    )


def describe_devices(devices: Sequence[Device]) -> str:
    """Return the devices below a local disk in one line.

    >>> describe_devices([])
    'unknown'
    """
    if not devices:
        return "unknown"
    kind = devices[-1].kind
    where = "memory" if kind == "memory" else "not memory" if devices[-1].number else "unknown"
    return " in a file on ".join(f"{device.file_system} on {device.name}" for device in devices) + f" ({where})"


def caveats(result: ReadsResult) -> Iterator[str]:
    """Yield a sentence for each thing that a result does not show."""
    for target in result.targets:
        if target.local_devices:
            yield f"The local disk of {target.name} is {describe_devices(target.local_devices)}; no NVMe was measured."
        if (text := _describe_reads(target)) is not None:
            yield text
        each_gb = (
            max(step.temp_bytes / step.sessions for step in target.steps) / GB / (result.experiment.rows / _MILLION)
        )
        theirs_gb = [spilled / sessions / (ROWS / _MILLION) for sessions, spilled in TEMP_GB.items()]
        yield (
            f"{target.name} spills {each_gb:.2f} GB for each session and million rows, the article "
            f"{min(theirs_gb):.1f} to {max(theirs_gb):.1f} GB."
        )
    yield (
        "Waiting: the share of the time on the volume in reads and writes of temporary files; forecast: from the runs"
        " on the volume alone, how long a disk that never waits would take."
    )
    if result.scaled is not None and (why := _multi_az_unshown(result)) is not None:
        yield f"Not shown: that Multi-AZ gains more; {why}."


def _describe_reads(target: ReadsTargetResult) -> str | None:
    """Return how much the step with most sessions read from memory instead of the local disk; None if unknown."""
    step = max(target.steps, key=lambda step: step.sessions)
    local, below = step.use("local"), step.use("below")
    if local is None or below is None:
        return None
    return (
        f"Of {local.read_bytes / GB:.2f} GB read from the local disk of {target.name} at {step.sessions} sessions, at "
        f"most {below.read_bytes / GB:.2f} GB were read from the disk below it: the rest came from the machine's "
        "memory."
    )


def _multi_az_unshown(result: ReadsResult) -> str | None:
    """Return why a result does not show that multi-az gains more than single; None if the result shows it."""
    steps = {target.name: {step.sessions: step for step in target.steps} for target in result.targets}
    if not {"single", "multi-az"} <= set(steps):
        return f"only {' and '.join(steps)} was measured"
    overlapping = [
        str(sessions)
        for sessions, single in steps["single"].items()
        if single.spilling
        and steps["multi-az"][sessions].spilling
        and speed_up_range(single.volume_s, single.local_s)[1]
        >= speed_up_range(steps["multi-az"][sessions].volume_s, steps["multi-az"][sessions].local_s)[0]
    ]
    return f"the spreads overlap at {', '.join(overlapping)} sessions" if overlapping else None


def _times(volume_s: Sequence[float], local_s: Sequence[float]) -> tuple[str, ...]:
    sides = (f"{value:.1f}" for side in (volume_s, local_s) for value in (typical_s(side), min(side), max(side)))
    differs = is_difference(volume_s, local_s)
    return (*sides, f"{speed_up(volume_s, local_s):.2f}" if differs else NO_DIFFERENCE)


def _traffic(use: QueryDeviceUse | None) -> str:
    return "-" if use is None else f"{use.write_bytes / GB:.2f}/{use.read_bytes / GB:.2f}"


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def chart(result: ReadsResult) -> Plot:
    """Return the plot of a result: how many times as fast the queries are with temporary files on a local disk."""
    machine = result.machine
    versions = ", ".join(sorted({target.postgresql for target in result.targets}))
    measured = (
        f"Measured: PostgreSQL {versions}; {result.experiment.rows:,} rows in each of three tables, "
        f"{result.experiment.rounds} rounds, either side first in half of them, "
        f"shaded from the lowest to the highest quotient. Client, and servers of a lab, on "
        f"{machine.cpu_model}, {machine.cpu_count} cores."
    )
    # The cores of a user's server are not known, so the article's line has no place in its plot.
    cores = None if result.scaled is None else machine.cpu_count
    published = () if cores is None else (_published_line(),)
    return Plot(
        title="Queries that spill: temporary work on local disk instead of the data's volume",
        x_label=f"sessions{'' if cores is None else ' for each core'}, all with the same query at a time",
        y_label="times as fast",
        lines=(*(_line(target, cores or 1) for target in result.targets), *published),
        notes=(measured, *(f"Published, not measured here: {SOURCE}." for _ in published)),
    )


def _line(target: ReadsTargetResult, cores: int) -> Line:
    points = (
        Point(
            x=step.sessions / cores,
            median=found,
            low=speed_up_range(step.volume_s, step.local_s)[0],
            high=speed_up_range(step.volume_s, step.local_s)[1],
        )
        for step in target.steps
        if (found := step.speed_up) is not None
    )
    return Line(name=target.name, points=tuple(points))


def _published_line() -> Line:
    speeds = {sessions: published_speed_up(sessions) or 1.0 for sessions in MINUTES}
    points = (Point.of(sessions / VCPUS, [speed]) for sessions, speed in speeds.items())
    return Line(name=f"published: {SHORT_SOURCE}", points=tuple(points), is_published=True)


def as_object(result: ReadsResult) -> dict[str, object]:
    """Return what --json prints of a result."""
    fields = asdict(result)
    fields["experiment"]["first_sides"] = result.experiment.first_sides
    fields["targets"] = [
        {
            "name": target.name,
            "postgresql": target.postgresql,
            "local_devices": [asdict(device) for device in target.local_devices],
            "steps": [_step(step, result) for step in target.steps],
        }
        for target in result.targets
    ]
    fields["caveats"] = list(caveats(result))
    fields["published"] = {
        "source": SOURCE,
        "minutes": {str(sessions): {"volume": ebs, "local": local} for sessions, (ebs, local) in MINUTES.items()},
        "temp_gb": {str(sessions): spilled_gb for sessions, spilled_gb in TEMP_GB.items()},
    }
    return fields


def _step(step: ReadsStep, result: ReadsResult) -> dict[str, object]:
    return {
        "sessions": step.sessions,
        "volume_s": step.volume_s,
        "local_s": step.local_s,
        "speed_up": step.speed_up,
        "is_difference": bool(step.spilling) and is_difference(step.volume_s, step.local_s),
        "published_speed_up": published_speed_up(step.sessions),
        "published_by_core": _published_by_core(step, result),
        "waiting": step.waiting,
        "forecast_s": step.forecast_s(cpu_count=result.machine.cpu_count),
        "temp_bytes": step.temp_bytes,
        "published_temp_bytes": published_temp_bytes(step.sessions, rows=result.experiment.rows),
        "queries": [{**asdict(run), "speed_up": speed_up(run.volume_s, run.local_s)} for run in step.runs],
    }
