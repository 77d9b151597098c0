"""A load that was planned → whether its disks suffice, which windows it meets, how its sources are reached. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.errors import AwsError, TargetError
from penstock.loading.preflight_rds import compose_growth, larger_size
from penstock.loading.space import describe_disk, describe_shortage
from penstock.model.finding import Finding
from penstock.model.windows import find_overlaps, propose_move
from penstock.units import GIB, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from penstock.model.finding import Severity
    from penstock.model.plan import LoadPlan
    from penstock.model.rds import RdsDescription, Storage
    from penstock.model.source import S3Route
    from penstock.model.space import DiskForecast
    from penstock.model.windows import Overlap

# Every window comes within this.
_WEEK = timedelta(days=7)

# Of an instance in a cluster both have windows.
_CALLS_WITH_WINDOWS = ("rds:DescribeDBClusters", "rds:DescribeDBInstances")

# What any load takes at least.
_MOMENT = timedelta(seconds=1)


def judge_disks(disks: Sequence[DiskForecast]) -> Iterator[Finding]:
    """Return what a load needs of this machine's disks; it is refused where one would be filled."""
    for disk in disks:
        if disk.is_short:
            error = describe_shortage(disk)
            text = f"{error.message}. {error.detail}".rstrip(".")
            yield Finding(severity="refusal", subject="disks", text=text, remedy=error.hint)
        else:
            yield _judge_room(disk)


def _judge_room(disk: DiskForecast) -> Finding:
    severity: Severity = "warning" if disk.is_tight else "ok"
    return Finding(severity=severity, subject="disks", text=f"{disk.device}: {describe_disk(disk)}")


def judge_volume(volume: DiskForecast, storage: Storage, found: RdsDescription) -> Iterator[Finding]:
    """Return what a load needs of an RDS instance's volumes, which may grow by themselves."""
    if not volume.needs:
        text = "how much storage the load needs cannot be told: a source does not tell its size, or has no record"
        yield Finding(severity="note", subject="disks", text=text)
        return
    if not volume.is_short:
        yield _judge_room(volume)
        return
    size_gib = storage.size_gib or 0
    missing_bytes = volume.needed_bytes - volume.free_bytes
    remedy = compose_growth(found, larger_size(size_gib, missing_bytes)) if size_gib else None
    ceiling_gib = storage.ceiling_gib
    text = f"the load would fill {volume.device}: {describe_disk(volume)}"
    if ceiling_gib is None:
        yield Finding(severity="refusal", subject="disks", text=f"{text}; it does not grow by itself", remedy=remedy)
    elif missing_bytes > (ceiling_gib - size_gib) * GIB:
        text += f"; growing by itself to {format_count(ceiling_gib)} GiB would not suffice"
        yield Finding(severity="refusal", subject="disks", text=text, remedy=remedy)
    else:
        text += f"; it may grow by itself to {format_count(ceiling_gib)} GiB, in steps and not at once"
        yield Finding(severity="warning", subject="disks", text=text, remedy=remedy)


def judge_windows(found: RdsDescription, *, now: datetime, expected: timedelta | None) -> Iterator[Finding]:
    """Return which maintenance and backup windows a load that begins now and lasts as long as expected meets.

    How long a load takes is nothing that a plan knows: without `expected` the next window is told.
    """
    if not found.windows:
        return
    met = find_overlaps(found.windows, start=now, duration=expected or _MOMENT)
    what = "any load that begins now" if expected is None else _describe_load(expected)
    for overlap in met:
        ways = _describe_ways_round(overlap, found, now=now, duration=expected or _MOMENT)
        yield Finding(
            # penstock load refuses what it was told to expect.
            severity="warning" if expected is None else "refusal",
            subject="windows",
            text=f"{what} meets the {overlap}",
            remedy=ways if expected is None else _add_override(ways),
        )
    if met:
        return
    if expected is not None:
        text = f"{_describe_load(expected)} meets no maintenance or backup window"
        yield Finding(severity="ok", subject="windows", text=text)
        return
    (coming, *_) = find_overlaps(found.windows, start=now, duration=_WEEK)
    yield Finding(
        severity="note",
        subject="windows",
        text=f"next comes the {coming}",
        remedy="With --expect TIME, how long the load may take, this tells whether they meet.",
    )


def refuse_windows(found: RdsDescription, *, now: datetime, expected: timedelta) -> TargetError | AwsError | None:
    """Return the error for a load that begins now and lasts as long as expected, None where it meets no window.

    AwsError: it meets none of those that AWS told, and there are others, of its cluster or of an instance of it.
    """
    met = find_overlaps(found.windows, start=now, duration=expected)
    if not met:
        untold = next((gap for gap in found.gaps if gap.call in _CALLS_WITH_WINDOWS), None)
        return None if untold is None else AwsError(f"AWS does not tell all of them. {untold.call}: {untold.reason}")
    ways = _describe_ways_round(met[0], found, now=now, duration=expected)
    return TargetError(
        f"{_describe_load(expected)} would meet a {met[0].window.kind} window",
        detail=f"{'; '.join(str(overlap) for overlap in met)}.",
        hint=_add_override(ways),
    )


def judge_routes(plan: LoadPlan, routes: Sequence[S3Route]) -> Iterator[Finding]:
    """Return by which ways S3's objects were reached: planning has listed them and read the first of each table."""
    for route in routes:
        inside = [
            source.uri
            for target in plan.targets
            for source in target.objects
            if source.uri.startswith(f"s3://{route.bucket}/")
        ]
        objects = f"{format_count(len(inside))} object{'' if len(inside) == 1 else 's'}"
        endpoint = "AWS's own endpoint" if route.endpoint is None else f"the endpoint {route.endpoint}"
        text = f"s3://{route.bucket} is reached from here: {objects}, by {endpoint} in region {route.region}"
        yield Finding(severity="ok", subject="sources", text=text)


def _describe_ways_round(overlap: Overlap, found: RdsDescription, *, now: datetime, duration: timedelta) -> str | None:
    """Return how a load keeps clear of a window: by waiting for its end, where that helps, or by moving it."""
    ways = []
    if not find_overlaps(found.windows, start=overlap.ends_at, duration=duration):
        ways.append(f"Start it at {overlap.ends_at:%a %H:%M} UTC.")
    move = propose_move(overlap.window, found.windows, start=now, duration=duration, region=found.region)
    if move is not None:
        ways.append(f"Move the window: {move}")
    return " ".join(ways) or None


def _add_override(ways: str | None) -> str:
    # First, so that the command at the end can be copied.
    return " ".join(["Say --ignore-windows to load all the same.", *([] if ways is None else [ways])])


def _describe_load(expected: timedelta) -> str:
    return f"a load of {format_duration(expected.total_seconds())} that begins now"
