"""Finds which other RDS storage carries a workload, and how to change an instance to it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.frozen import frozen
from penstock.model.server.rds import EbsLimits, Storage
from penstock.storage.demand import Demand, simulate
from penstock.storage.envelopes import VOLUME_KINDS, VolumeKind, estimate_price, find_envelope, find_figure, find_sizes
from penstock.storage.limits import find_volume_limits
from penstock.units import MIB

if TYPE_CHECKING:
    from penstock.model.server.device import VolumeLimits

# Storage carries a workload if the workload takes at most this much longer than without a limit of the volume.
_CARRIES = 1.05

# The kinds of storage to choose from. Magnetic storage is withdrawn.
_KINDS: tuple[VolumeKind, ...] = ("gp2", "gp3", "io1", "io2")

# Proposed IOPS are multiples of this. RDS allows an increase of the IOPS, or of the size, only by at least a tenth.
_IOPS_STEP = 1000


@frozen
class Candidate:
    """Storage to which an instance can be changed."""

    storage: Storage
    limits: VolumeLimits
    # How long the workload takes on it, if otherwise only processors and the instance limit the workload.
    elapsed_s: float
    # A multiple of the price of the present storage, None if that is not known.
    price: float | None
    # Whether RDS copies all data to other volumes, which takes hours.
    copies: bool


def propose(present: Storage, demand: Demand, ebs: EbsLimits | None) -> list[Candidate]:
    """Return for each kind the smallest storage that carries the workload, the smallest change first.

    Nothing is proposed if the volume does not limit the workload. Storage is not made smaller, because RDS cannot do
    that.
    """
    if demand.limit in (None, "instance-limit") or present.size_gib is None:
        return []
    found: dict[VolumeKind, Candidate] = {}
    own_limits = find_volume_limits(present, ebs)
    for kind, storage in _ways(present, demand):
        limits = find_volume_limits(storage, ebs)
        if limits in (None, own_limits) or kind in found:
            continue
        unlimited = replace(limits, iops=2**40, bytes_per_s=None, burst_iops=None, burst_ios=None)
        best_s = simulate(demand.uses, unlimited, 0.0)
        elapsed_s = simulate(demand.uses, limits, demand.balance_share)
        if elapsed_s <= _CARRIES * best_s and elapsed_s < max(demand.here_s, demand.elapsed_s):
            found[kind] = _describe(present, storage, limits, elapsed_s)
    return sorted(found.values(), key=lambda each: (each.copies, each.storage.size_gib or 0, each.price or 0.0))


def price_of(storage: Storage) -> float | None:
    """Return the price of storage in an arbitrary unit, for comparisons only; None if it is not known."""
    kind = next((kind for kind in VOLUME_KINDS if kind == storage.type), None)
    if kind is None or storage.size_gib is None:
        return None
    return estimate_price(kind, storage.size_gib, iops=storage.iops or 0, mib_per_s=storage.throughput_mib_per_s or 0)


def modify_command(identifier: str, region: str, present: Storage, storage: Storage) -> str:
    """Return the command that changes an RDS instance to other storage. penstock does not run it."""
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
    """Return the command that turns off storage autoscaling, by a limit equal to the allocated size."""
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
        copies=is_striped != was_striped or present.type == "magnetic",
    )


def _ways(present: Storage, demand: Demand) -> Iterator[tuple[VolumeKind, Storage]]:
    """Yield storage that may carry a workload. The sizes of each kind increase."""
    for kind in _KINDS:
        for size_gib in _sizes(kind, present, demand):
            if kind == "gp2":
                yield kind, _storage(kind, size_gib)
            else:
                yield kind, _provision(kind, size_gib, present, demand)


def _provision(kind: VolumeKind, size_gib: int, present: Storage, demand: Demand) -> Storage:
    """Return storage with the IOPS and the throughput of a demand, as far as RDS allows them for the size."""
    limits = find_envelope(kind, size_gib)
    if limits.least_iops == limits.most_iops:
        return _storage(kind, size_gib)
    needed_mib_per_s = math.ceil(demand.most_bytes_per_s / MIB)
    iops = max(math.ceil(demand.most_iops / _IOPS_STEP) * _IOPS_STEP, limits.least_iops)
    mib_per_s = None
    if kind == "gp3":
        mib_per_s = min(max(needed_mib_per_s, find_figure(kind, "least_mib_per_s")), limits.most_bytes_per_s // MIB)
        iops = max(iops, find_figure(kind, "iops_per_mib_per_s") * mib_per_s)
    if kind == present.type and present.iops is not None:
        iops = present.iops if iops <= present.iops else max(iops, math.ceil(present.iops * 11 / 10))
    return _storage(
        kind, size_gib, iops=min(iops, limits.most_iops, find_figure(kind, "iops_per_gib") * size_gib), mib=mib_per_s
    )


def _sizes(kind: VolumeKind, present: Storage, demand: Demand) -> list[int]:
    """Return the sizes of a kind of storage to try, smallest first: the present one, and sizes with other limits."""
    now = present.size_gib or 1
    least, striped, most = find_sizes(kind)
    wanted = [max(now, least), math.ceil(now * 11 / 10), striped]
    if kind != "gp3":
        wanted.append(math.ceil(demand.most_iops / find_figure(kind, "iops_per_gib")))
    if kind == "gp2":
        # Above these sizes, the throughput of one volume and of four is larger.
        wanted += [volumes * find_figure(kind, "small_gib") + 1 for volumes in (1, 4)]
    return sorted({size for size in wanted if least <= size <= most and (size == now or size * 10 >= now * 11)})


def _storage(kind: VolumeKind, size_gib: int, *, iops: int | None = None, mib: int | None = None) -> Storage:
    return Storage(type=kind, size_gib=size_gib, iops=iops, throughput_mib_per_s=mib, ceiling_gib=None, free_bytes=None)
