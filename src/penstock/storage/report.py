"""Reports the storage of a server: its limits, what a workload used of them, and which storage would carry it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from penstock.core.errors import AwsError, SourceError, UsageError
from penstock.core.slotted import slotted
from penstock.core.units import GIB, MIB
from penstock.core.values.device import CounterRow, VolumeLimits
from penstock.diagnose.uses import (
    Demand,
    WorkloadIo,
    WorkloadIoReader,
    measure_demand,
    read_balance,
    read_metrics_as_uses,
    simulate,
)
from penstock.rds.metrics import read_instance_metrics
from penstock.rds.options import read_storage_options
from penstock.rds.values import EbsLimits, RdsDescription, RdsInstance, Storage, StorageOption
from penstock.rds.volumes import (
    VOLUME_KINDS,
    VolumeKind,
    estimate_price,
    find_envelope,
    find_figure,
    find_sizes,
    find_volume_limits,
    parse_volume,
)
from penstock.watch.kept import newest_recording, recordings_folder
from penstock.watch.recordings import read_recording

# Storage carries a workload if the workload takes at most this many times as long as on a volume without limits. It is
# worth a change if the workload takes this many times as long on the present storage.
_CARRIES = 1.05

# The kinds of storage to choose from. RDS has withdrawn magnetic storage.
_KINDS: tuple[VolumeKind, ...] = ("gp2", "gp3", "io1", "io2")

# Proposed IOPS are multiples of this. RDS requires that an increase of the IOPS, or of the size, is at least a tenth.
_IOPS_STEP = 1000


@slotted
class Candidate:
    """Storage to which an instance can be changed, and how the workload would run there."""

    storage: Storage
    limits: VolumeLimits
    # How long the workload takes on the storage, if only storage, processors and the instance limit it.
    elapsed_s: float
    # The price as a multiple of the present storage's price, None if it is not known.
    price: float | None
    # Whether the change makes RDS copy all data to other volumes, which takes hours.
    copies: bool


def propose(
    present: Storage, demand: Demand, ebs: EbsLimits | None, options: Sequence[StorageOption] | None = None
) -> list[Candidate]:
    """Return for each kind of storage the smallest that carries the workload. The smallest change comes first.

    `demand` is what the workload asked of the present storage, and `ebs` the limits of the instance's class. Nothing is
    proposed if the volume does not limit the workload. Smaller storage is not proposed, because RDS cannot make storage
    smaller. `options` are what RDS allows this instance, None if that is not known.
    """
    if demand.limit in (None, "instance-limit") or present.size_gib is None:
        return []
    found: dict[VolumeKind, Candidate] = {}
    own_limits = find_volume_limits(present, ebs)
    for kind, way in _ways(present, demand):
        storage = way if options is None else fit(way, options)
        limits = None if storage is None else find_volume_limits(storage, ebs)
        if storage is None or limits in (None, own_limits) or kind in found:
            continue
        uses = demand.on(kind).uses
        unlimited = replace(limits, iops=2**40, bytes_per_s=None, burst_iops=None, burst_ios=None)
        best_s = simulate(uses, unlimited, 0.0)
        elapsed_s = simulate(uses, limits, demand.balance_share)
        is_worth = _CARRIES * elapsed_s <= max(demand.here_s, demand.elapsed_s)
        if elapsed_s <= _CARRIES * best_s and is_worth:
            found[kind] = _describe(present, storage, limits, elapsed_s)
    return sorted(found.values(), key=lambda each: (each.copies, each.storage.size_gib or 0, each.price or 0.0))


def fit(storage: Storage, options: Sequence[StorageOption]) -> Storage | None:
    """Return `storage` with the nearest IOPS and throughput that RDS allows; None if it allows no such kind or size."""
    size_gib = storage.size_gib or 0
    for option in options:
        is_there = any(first <= size_gib <= last for first, last in option.sizes_gib)
        if option.type == storage.type and is_there:
            most = None if option.most_iops_per_gib is None else math.floor(option.most_iops_per_gib * size_gib)
            iops = _limit(storage.iops, option.iops, most)
            ratio = option.most_mib_per_s_per_iops
            most = None if ratio is None or iops is None else math.floor(ratio * iops)
            return replace(
                storage, iops=iops, throughput_mib_per_s=_limit(storage.throughput_mib_per_s, option.mib_per_s, most)
            )
    return None


def _limit(wanted: int | None, ranges: Sequence[tuple[int, int]], most: int | None) -> int | None:
    """Return the allowed value that is nearest to `wanted`. Without ranges, or for None, return `wanted` itself."""
    if wanted is None or not ranges:
        return wanted
    nearest = min((min(max(wanted, first), last) for first, last in ranges), key=lambda value: abs(value - wanted))
    return nearest if most is None else min(nearest, most)


def price_of(storage: Storage) -> float | None:
    """Return the price of storage in an arbitrary unit, for comparisons only; None if it is not known."""
    kind = next((kind for kind in VOLUME_KINDS if kind == storage.type), None)
    if kind is None or storage.size_gib is None:
        return None
    return estimate_price(kind, storage.size_gib, iops=storage.iops or 0, mib_per_s=storage.throughput_mib_per_s or 0)


def modify_command(identifier: str, region: str, present: Storage, storage: Storage) -> str:
    """Return the `aws` command that changes an RDS instance from `present` to `storage`. penstock does not run it."""
    words = [f"aws rds modify-db-instance --region {region} --db-instance-identifier {identifier}"]
    if storage.type != present.type:
        words.append(f"--storage-type {storage.type}")
    words.append(f"--allocated-storage {storage.size_gib}")
    if storage.iops is not None:
        words.append(f"--iops {storage.iops}")
    if storage.throughput_mib_per_s is not None:
        words.append(f"--storage-throughput {storage.throughput_mib_per_s}")
    return " ".join([*words, "--apply-immediately"])


def stop_growth_command(identifier: str, region: str, storage: Storage) -> str:
    """Return the `aws` command that turns off storage autoscaling: it sets the limit to the allocated size."""
    instance = f"aws rds modify-db-instance --region {region} --db-instance-identifier {identifier}"
    return f"{instance} --max-allocated-storage {storage.size_gib} --apply-immediately"


def _describe(present: Storage, storage: Storage, limits: VolumeLimits, elapsed_s: float) -> Candidate:
    old, new = price_of(present), price_of(storage)
    _, striped_gib, _ = find_sizes("gp2")
    is_striped, was_striped = ((each.size_gib or 0) >= striped_gib for each in (storage, present))
    return Candidate(
        storage=storage,
        limits=limits,
        elapsed_s=elapsed_s,
        price=None if not old or new is None else new / old,
        copies=is_striped != was_striped or present.type == "standard",
    )


def _ways(present: Storage, demand: Demand) -> Iterator[tuple[VolumeKind, Storage]]:
    """Yield storage that may carry a workload. For each kind, the smallest size comes first."""
    for kind in _KINDS:
        asked = demand.on(kind)
        for size_gib in _sizes(kind, present, asked):
            if kind == "gp2":
                yield kind, _storage(kind, size_gib)
            else:
                yield kind, _provision(kind, size_gib, present, asked)


def _provision(kind: VolumeKind, size_gib: int, present: Storage, demand: Demand) -> Storage:
    """Return storage of this size with the IOPS and the throughput that a demand needs, as far as RDS allows them."""
    limits = find_envelope(kind, size_gib)
    if limits.least_iops == limits.most_iops:
        return _storage(kind, size_gib)
    needed_mib_per_s = math.ceil(demand.most_bytes_per_s / MIB)
    iops = max(math.ceil(demand.most_iops / _IOPS_STEP) * _IOPS_STEP, limits.least_iops)
    mib_per_s = None
    if kind == "gp3":
        # What the workload does not need now, other work may need.
        present_mib_per_s = present.throughput_mib_per_s or 0 if present.type == kind else 0
        least_mib_per_s = max(needed_mib_per_s, present_mib_per_s, find_figure(kind, "least_mib_per_s"))
        mib_per_s = min(least_mib_per_s, limits.most_bytes_per_s // MIB)
        iops = max(iops, find_figure(kind, "iops_per_mib_per_s") * mib_per_s)
    if kind == present.type and present.iops is not None:
        iops = present.iops if iops <= present.iops else max(iops, math.ceil(present.iops * 11 / 10))
    return _storage(
        kind, size_gib, iops=min(iops, limits.most_iops, find_figure(kind, "iops_per_gib") * size_gib), mib=mib_per_s
    )


def _sizes(kind: VolumeKind, present: Storage, demand: Demand) -> list[int]:
    """Return the sizes of a kind of storage to try, smallest first: the present size, and sizes with higher limits."""
    now = present.size_gib or 1
    least, striped, most = find_sizes(kind)
    wanted = [max(now, least), math.ceil(now * 11 / 10), striped]
    if kind != "gp3":
        wanted.append(math.ceil(demand.most_iops / find_figure(kind, "iops_per_gib")))
    if kind == "gp2":
        # Add the smallest sizes with which one volume, and four striped volumes, have gp2's higher throughput.
        wanted += [volumes * find_figure(kind, "small_gib") + 1 for volumes in (1, 4)]
    return sorted({size for size in wanted if least <= size <= most and (size == now or size * 10 >= now * 11)})


def _storage(kind: VolumeKind, size_gib: int, *, iops: int | None = None, mib: int | None = None) -> Storage:
    return Storage(type=kind, size_gib=size_gib, iops=iops, throughput_mib_per_s=mib, ceiling_gib=None, free_bytes=None)


# Without a recording, the report shows the use of an RDS instance within this time.
_LOOKED_BACK = timedelta(hours=1)


@slotted
class StorageReport:
    """Storage and its limits, what a workload asked of it, and other storage that would carry the workload."""

    name: str
    storage: Storage
    limits: VolumeLimits
    # The instance, None if the storage is not that of RDS.
    instance: RdsInstance | None = None
    # The instance's region, None if the storage is not that of RDS.
    region: str | None = None
    # The source of the workload's use.
    seen_in: str | None = None
    # The workload's use of the storage, None if it is not known.
    demand: Demand | None = None
    # The storage that would carry the demand, the smallest change first.
    candidates: tuple[Candidate, ...] = ()
    # What RDS allows the instance; None if it did not say, or if the storage is not that of RDS.
    options: tuple[StorageOption, ...] | None = None
    # Why RDS did not say what it allows, None if it did.
    unasked: str | None = None


def report_volume(volume: str, recording: Path | None, *, needs_use: bool) -> StorageReport:
    """Return the report of a volume, and of what the workload in a recording asked of it.

    `volume` is as for `penstock lab up --volume`. Without a recording the report has no workload; with `needs_use`, the
    recording of the user's last load is then read. Raises UsageError, SourceError.
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
    """Return the report of a volume, and which part of its burst bucket is full, 0 to 1."""
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
    # The result 0.0 is for a spent volume. If the volume has no bucket, the number is used for the buckets of proposed
    # storage.
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
    ask_options: Callable[..., tuple[StorageOption, ...]] = read_storage_options,
) -> StorageReport:
    """Return the report of an RDS instance's storage, and of what a workload asked of it.

    The workload is read from the recording, if it has counters of the instance's devices. Otherwise it is read from the
    metrics of CloudWatch for the time of the recording, or for the last hour without a recording. If CloudWatch has
    none for that time, those in the recording are used. `needs_use` is whether it is an error that no workload is
    found. `ask` and `ask_options` ask AWS; if RDS does not say what it allows the instance, RDS's general limits are
    used. Raises UsageError, SourceError, AwsError.
    """
    report = _read_instance(described)
    try:
        report = replace(report, options=ask_options(report.name, region=described.region, profile=profile))
    except AwsError as error:
        report = replace(report, unasked=error.message if error.detail is None else f"{error.message}. {error.detail}")
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


def _read_uses(path: Path) -> WorkloadIoReader:
    recording = read_recording(path)
    reader = WorkloadIoReader(recording.header)
    for sample in recording.samples:
        reader.see(sample)
    return reader


def _conclude(
    report: StorageReport, uses: list[WorkloadIo], seen_in: str, *, balance_share: float | None = None
) -> StorageReport:
    demand = measure_demand(uses, report.limits, balance_share)
    ebs = None if report.instance is None else report.instance.instance_class.ebs
    candidates = propose(report.storage, demand, ebs, report.options)
    return replace(report, demand=demand, seen_in=seen_in, candidates=tuple(candidates))
