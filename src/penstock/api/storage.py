"""Reports the storage of an RDS instance, or a volume: its limits, a workload's use, and storage that would do."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.aws.metrics import read_instance_metrics
from penstock.diagnose.uses import UseReader, read_balance, read_metrics_as_uses
from penstock.errors import AwsError, SourceError, UsageError
from penstock.frozen import frozen
from penstock.model.server.device import VolumeLimits
from penstock.model.server.rds import RdsDescription, RdsInstance, Storage
from penstock.observe.kept import newest_recording, recordings_folder
from penstock.observe.recordings import read_recording
from penstock.storage.candidates import Candidate, propose
from penstock.storage.demand import Demand, Use, measure_demand
from penstock.storage.limits import find_volume_limits
from penstock.storage.volume import parse_volume
from penstock.units import GIB, MIB

if TYPE_CHECKING:
    from penstock.model.server.counters import CounterRow

# Without a recording, the report shows the use of an RDS instance within this time.
_LOOKED_BACK = timedelta(hours=1)


@frozen
class StorageReport:
    """Storage, its limits, and what a workload asked of it."""

    name: str
    storage: Storage
    limits: VolumeLimits
    # None if the storage is not that of RDS.
    instance: RdsInstance | None = None
    # None if the storage is not that of RDS.
    region: str | None = None
    # The source of the workload's use.
    seen_in: str | None = None
    # None if no use is known.
    demand: Demand | None = None
    # The storage that would carry the demand, the smallest change first.
    candidates: tuple[Candidate, ...] = ()


def report_volume(volume: str, recording: Path | None, *, needs_use: bool) -> StorageReport:
    """Return the report of a volume as `penstock lab up --volume` names it, and of its use in a recording.

    With `needs_use`, the default recording is the newest of the user's loads. Raises UsageError, SourceError.
    """
    report, balance_share = _read_volume(volume)
    if recording is None and not needs_use:
        return report
    path = newest_recording(recordings_folder(os.environ)) if recording is None else recording
    read = _read_uses(path)
    uses = read.uses or read_metrics_as_uses(read.rows)
    if not uses:
        raise SourceError(
            f'recording "{path}" has no counters of the volume',
            detail="They are recorded if the server is on the machine that records, or on Amazon RDS.",
            hint="Record on the server's machine: penstock watch --record FILE.",
        )
    return _conclude(report, uses, f"recording {path}", balance_share=balance_share)


def _read_volume(text: str) -> tuple[StorageReport, float]:
    """Return the report of a volume, and the part of its burst bucket that is full."""
    volume = parse_volume(text)
    throttle = volume.throttle
    if throttle is None:
        raise UsageError("an unlimited volume has no limits to plan with", hint="Name the volume's kind and size.")
    given = volume.kind not in (None, "gp2")
    storage = Storage(
        type=volume.kind,
        size_gib=math.ceil(volume.size_bytes / GIB),
        iops=throttle.iops if given else None,
        throughput_mib_per_s=throttle.bytes_per_s // MIB if volume.kind == "gp3" else None,
        ceiling_gib=None,
        free_bytes=None,
    )
    limits = VolumeLimits(
        iops=throttle.iops,
        bytes_per_s=throttle.bytes_per_s,
        burst_iops=throttle.burst_iops,
        burst_ios=throttle.burst_ios or None,
    )
    # If the volume has no bucket, this is the balance for the buckets of candidates.
    is_spent = volume.kind == "gp2" and throttle.burst_iops is None
    return StorageReport(name=text, storage=storage, limits=limits), 0.0 if is_spent else 1.0


def report_instance(
    described: RdsDescription,
    recording: Path | None,
    *,
    needs_use: bool,
    now: datetime,
    profile: str | None = None,
    ask: Callable[..., list[CounterRow]] = read_instance_metrics,
) -> StorageReport:
    """Return the report of an RDS instance's storage, and of its use by CloudWatch's metrics.

    The metrics are those of the time of the recording, by default of the last hour. If CloudWatch has none, those in
    the recording are used. Raises UsageError, SourceError, AwsError.
    """
    report = _read_instance(described)
    recorded: list[CounterRow] = []
    since, until, seen_in = now - _LOOKED_BACK, now, "CloudWatch, the last hour"
    if recording is not None:
        read = _read_uses(recording)
        if read.uses:
            return _conclude(report, read.uses, f"recording {recording}")
        since = datetime.fromisoformat(read.started_at)
        until = since + timedelta(seconds=read.elapsed_s)
        recorded = [row for row in read.rows if row.get("instance") == report.name]
        seen_in = f"CloudWatch, the time of recording {recording}"
    try:
        rows = ask(report.name, since=since, until=until, region=described.region, profile=profile) or recorded
    except AwsError:
        if needs_use and not recorded:
            raise
        rows = recorded
    uses = read_metrics_as_uses(rows)
    if uses:
        return _conclude(report, uses, seen_in, balance_share=read_balance(rows))
    if needs_use:
        raise SourceError(
            f"CloudWatch has no use of the storage of {report.name}",
            detail=f"From {since.isoformat(timespec='seconds')} to {until.isoformat(timespec='seconds')}.",
            hint="Its values are a few minutes late, and those of a minute are kept for 15 days.",
        )
    return report


def _read_instance(described: RdsDescription) -> StorageReport:
    instance, cluster = described.instance, described.cluster
    if cluster is not None or instance is None or instance.storage is None:
        name = cluster.identifier if cluster is not None else "the server"
        is_aurora = cluster is None or cluster.is_aurora
        raise UsageError(
            f"the storage of {name} cannot be planned",
            detail="Aurora's volume grows automatically and has no limits of its own."
            if is_aurora
            else "It is a Multi-AZ DB cluster, which is changed as a whole.",
            hint="penstock rds show has what AWS reports of it.",
        )
    limits = find_volume_limits(instance.storage, instance.instance_class.ebs)
    if limits is None:
        raise UsageError(
            f"the limits of the storage of {instance.identifier} are not known",
            detail=f"It is {instance.storage.type} of {instance.storage.size_gib} GiB.",
        )
    return StorageReport(
        name=instance.identifier, storage=instance.storage, limits=limits, instance=instance, region=described.region
    )


def _read_uses(path: Path) -> UseReader:
    recording = read_recording(path)
    reader = UseReader(recording.header)
    for sample in recording.samples:
        reader.see(sample)
    return reader


def _conclude(
    report: StorageReport, uses: list[Use], seen_in: str, *, balance_share: float | None = None
) -> StorageReport:
    demand = measure_demand(uses, report.limits, balance_share)
    ebs = None if report.instance is None else report.instance.instance_class.ebs
    return replace(report, demand=demand, seen_in=seen_in, candidates=tuple(propose(report.storage, demand, ebs)))
