"""Judges a planned load: whether disk space suffices, which AWS windows are near, how S3 is reached. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.access.rds import compose_growth, larger_size
from penstock.loading.plan.space import DiskSpace, describe_disk, describe_shortage
from penstock.model.finding import Finding, Severity, note, ok, refusal, refusal_of, warning
from penstock.model.server.windows import describe_near
from penstock.units import GIB, count_nouns, format_count

if TYPE_CHECKING:
    from penstock.model.load.plan import LoadPlan
    from penstock.model.load.space import DiskForecast
    from penstock.model.server.rds import RdsDescription, Storage
    from penstock.model.source.source import S3Route


def judge_disks(space: DiskSpace) -> Iterator[Finding]:
    """Yield a finding for each local disk.

    It is a refusal if the load would fill the disk and the job does not allow that.
    """
    for disk in space.disks:
        if disk.is_short and not space.is_ignored:
            yield refusal_of(describe_shortage(disk), "disks")
        else:
            yield _judge_room(disk)


def _judge_room(disk: DiskForecast) -> Finding:
    severity: Severity = "warning" if disk.is_tight or disk.is_short else "ok"
    return Finding(severity=severity, subject="disks", text=f"{disk.device}: {describe_disk(disk)}")


def judge_volume(volume: DiskForecast, storage: Storage, found: RdsDescription) -> Iterator[Finding]:
    """Yield a finding on whether the load fits on an RDS instance's volumes, which may grow automatically."""
    if not volume.needs:
        text = "the disk space that the load needs is not known: a source has no known size, or no record"
        yield note("disks", text)
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
        yield refusal("disks", f"{text}; autoscaling is off", remedy)
    elif missing_bytes > (ceiling_gib - size_gib) * GIB:
        text += f"; automatic growth to {format_count(ceiling_gib)} GiB is not enough"
        yield refusal("disks", text, remedy)
    else:
        text += f"; it may grow automatically to {format_count(ceiling_gib)} GiB, in steps and not at once"
        yield warning("disks", text, remedy)


def judge_windows(found: RdsDescription, *, now: datetime) -> Iterator[Finding]:
    """Yield a note for each maintenance or backup window that is open now or begins within three hours."""
    for text in describe_near(found.windows, now=now):
        yield note("windows", text)


def judge_routes(plan: LoadPlan, routes: Sequence[S3Route]) -> Iterator[Finding]:
    """Yield for each S3 bucket by which endpoint it was reached.

    Planning has reached the buckets: it lists them, and reads one object for each table.
    """
    for route in routes:
        inside = [
            source.uri
            for target in plan.targets
            for source in target.objects
            if source.uri.startswith(f"s3://{route.bucket}/")
        ]
        endpoint = "AWS's own endpoint" if route.endpoint is None else f"the endpoint {route.endpoint}"
        objects = count_nouns(len(inside), "object")
        text = f"s3://{route.bucket} is reached from here: {objects}, by {endpoint} in region {route.region}"
        yield ok("sources", text)
