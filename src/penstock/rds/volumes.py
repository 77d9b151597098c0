"""RDS's limits for volumes, gp2's burst bucket, and the volumes of the lab. envelopes.toml has the figures."""

from __future__ import annotations

import math
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from penstock.core.errors import UsageError
from penstock.core.slotted import slotted
from penstock.core.units import GIB, MB, MIB
from penstock.core.values.device import VolumeLimits

if TYPE_CHECKING:
    from penstock.rds.values import EbsLimits, Storage


@slotted
class Bucket:
    """The burst bucket of a gp2 volume: a balance of I/Os that it may do beyond its baseline rate.

    I/Os beyond the baseline take from the balance. The bucket fills at the baseline rate, less the I/Os done.

    >>> Bucket(capacity_ios=5_400_000, baseline_iops=750, burst_iops=3000).burst_s(5_400_000)
    2400.0
    """

    capacity_ios: int
    baseline_iops: int
    # The largest rate while the bucket is not empty.
    burst_iops: int

    def burst_s(self, balance_ios: float) -> float:
        """Return how many seconds a balance lasts at the full burst rate."""
        spent_per_s = self.burst_iops - self.baseline_iops
        return balance_ios / spent_per_s if spent_per_s > 0 else math.inf

    def run(self, *, balance_ios: float, demand_iops: float, elapsed_s: float) -> tuple[float, float]:
        """Return how many I/Os a volume does in `elapsed_s` seconds, and the balance after them.

        `balance_ios` is the balance before, and `demand_iops` the rate at which I/Os are asked for.
        """
        reached_iops = min(demand_iops, max(self.burst_iops, self.baseline_iops))
        spent_per_s = reached_iops - self.baseline_iops
        if spent_per_s <= 0:
            return reached_iops * elapsed_s, min(self.capacity_ios, balance_ios - spent_per_s * elapsed_s)
        burst_s = min(elapsed_s, balance_ios / spent_per_s)
        done_ios = reached_iops * burst_s + self.baseline_iops * (elapsed_s - burst_s)
        return done_ios, balance_ios - spent_per_s * burst_s

    def take(self, *, balance_ios: float, ios: float, least_s: float) -> tuple[float, float]:
        """Return how many seconds a volume takes for `ios` I/Os, and the balance after them.

        `balance_ios` is the balance before. The I/Os are asked for within `least_s` seconds, so they take at least as
        long.

        >>> Bucket(capacity_ios=5_400_000, baseline_iops=750, burst_iops=3000).take(
        ...     balance_ios=0, ios=4500, least_s=1
        ... )
        (6.0, 0.0)
        """
        demand_iops = ios / least_s if least_s > 0 else math.inf
        reached_iops = min(demand_iops, max(self.burst_iops, self.baseline_iops))
        if reached_iops <= self.baseline_iops:
            elapsed_s = max(least_s, ios / self.baseline_iops)
            earned = self.baseline_iops * elapsed_s - ios
            return elapsed_s, min(float(self.capacity_ios), balance_ios + earned)
        spent_per_s = reached_iops - self.baseline_iops
        burst_s = min(ios / reached_iops, balance_ios / spent_per_s)
        elapsed_s = burst_s + (ios - reached_iops * burst_s) / self.baseline_iops
        return elapsed_s, max(0.0, balance_ios - spent_per_s * burst_s)


# RDS's names. "standard" is magnetic storage.
VolumeKind = Literal["gp2", "gp3", "io1", "io2", "standard"]

VOLUME_KINDS: tuple[VolumeKind, ...] = get_args(VolumeKind)


@slotted
class Envelope:
    """The limits of RDS storage of one kind and size."""

    kind: VolumeKind
    size_gib: float
    volumes: int
    least_iops: int
    most_iops: int
    most_bytes_per_s: int
    # The burst bucket of all volumes together, None if this kind has none.
    bucket: Bucket | None = None


def find_envelope(kind: VolumeKind, size_gib: float) -> Envelope:
    """Return the limits of RDS storage of a kind and size. Raises UsageError for a size that RDS does not offer."""
    stripes = _figures()["stripes"]
    volumes = stripes["volumes"] if size_gib >= stripes["from_gib"] else 1
    limits = _figures()[kind]
    if kind == "gp2":
        if not 0 < size_gib <= limits["most_gib"]:
            raise _wrong_size(kind, size_gib, f"up to {limits['most_gib']}")
        return _gp2(size_gib, volumes, limits)
    for row in limits["sizes"]:
        if row["least_gib"] <= size_gib < row["most_gib"] + 1:
            return Envelope(
                kind=kind,
                size_gib=size_gib,
                volumes=volumes,
                least_iops=row["least_iops"],
                most_iops=row["most_iops"],
                most_bytes_per_s=row["mib_per_s"] * MIB,
            )
    raise _wrong_size(kind, size_gib, f"from {limits['sizes'][0]['least_gib']} to {limits['sizes'][-1]['most_gib']}")


def estimate_price(kind: VolumeKind, size_gib: float, *, iops: float, mib_per_s: float) -> float | None:
    """Return the price of RDS storage in an arbitrary unit, for comparisons only; None if it is not known."""
    prices: dict[str, float] | None = _figures()["prices"].get(kind)
    if prices is None:
        return None
    paid_iops = max(0.0, iops - prices.get("included_iops", 0.0))
    paid_mib_per_s = max(0.0, mib_per_s - prices.get("included_mib_per_s", 0.0))
    return (
        prices["gib"] * size_gib + prices.get("iops", 0.0) * paid_iops + prices.get("mib_per_s", 0.0) * paid_mib_per_s
    )


def find_sizes(kind: VolumeKind) -> tuple[int, int, int]:
    """Return the smallest size of a kind of storage, the first that RDS stripes, and the largest, in GiB."""
    limits = _figures()[kind]
    first, last = (limits, limits) if kind == "gp2" else (limits["sizes"][0], limits["sizes"][-1])
    return first["least_gib"], _figures()["stripes"]["from_gib"], last["most_gib"]


def find_figure(kind: VolumeKind, name: str) -> int:
    """Return a number of a kind of storage. `name` is its name in envelopes.toml, which ends in its unit."""
    figure: int = _figures()[kind][name]
    return figure


def _gp2(size_gib: float, volumes: int, limits: dict[str, Any]) -> Envelope:
    """Return the limits of gp2 storage.

    RDS stripes large storage over several volumes. The limits of each volume depend on its size.
    """
    each_gib = size_gib / volumes
    iops = round(min(max(limits["iops_per_gib"] * each_gib, limits["least_iops"]), limits["most_iops"]))
    mib_per_s = limits["small_mib_per_s"] if each_gib <= limits["small_gib"] else limits["mib_per_s"]
    burst_iops = max(iops, limits["burst_iops"])
    bucket = Bucket(
        capacity_ios=limits["bucket_ios"] * volumes,
        baseline_iops=iops * volumes,
        burst_iops=burst_iops * volumes,
    )
    return Envelope(
        kind="gp2",
        size_gib=size_gib,
        volumes=volumes,
        least_iops=iops * volumes,
        most_iops=burst_iops * volumes,
        most_bytes_per_s=mib_per_s * volumes * MIB,
        bucket=bucket if burst_iops > iops else None,
    )


def _wrong_size(kind: str, size_gib: float, expected: str) -> UsageError:
    return UsageError(f"{kind} does not have {size_gib:g} GiB", detail=f"RDS has {kind} {expected} GiB")


@cache
def _figures() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("envelopes.toml").read_text(encoding="utf-8"))


def find_volume_limits(storage: Storage, ebs: EbsLimits | None) -> VolumeLimits | None:
    """Return the limits of storage and of its instance; None if the kind or the size of the storage is not known.

    `ebs` are the limits of the instance's class, None if they are not known. The result does not have the present
    balance of a burst bucket.
    """
    kind = next((kind for kind in VOLUME_KINDS if kind == storage.type), None)
    if kind is None or storage.size_gib is None:
        return None
    try:
        envelope = find_envelope(kind, storage.size_gib)
    except UsageError:
        return None
    bucket = envelope.bucket
    # The throughput of a single gp3 volume is fixed. Several striped volumes have the throughput that was provisioned.
    given = None if storage.throughput_mib_per_s is None else storage.throughput_mib_per_s * MIB
    is_fixed = kind != "gp3" or envelope.volumes == 1
    return VolumeLimits(
        iops=envelope.least_iops if bucket is not None else storage.iops or envelope.least_iops,
        bytes_per_s=envelope.most_bytes_per_s if is_fixed else given,
        burst_iops=None if bucket is None else bucket.burst_iops,
        burst_ios=None if bucket is None else bucket.capacity_ios,
        instance_iops=None if ebs is None else ebs.baseline_iops,
        instance_bytes_per_s=None if ebs is None else round(ebs.baseline_mb_per_s * MB),
    )


# The largest size of one I/O. A larger I/O counts as several I/Os (EBS User Guide, I/O characteristics).
IO_BYTES = 256 * 1024

# The size of an unlimited volume's file. The file is sparse: it uses only the space that is written.
_UNLIMITED_BYTES = 64 * GIB
# The smallest size of a volume: the space that ext4 and an empty PostgreSQL with its WAL need.
_LEAST_BYTES = 256 * MIB
_SIZES = {"MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}

_FORMS = "gp2:SIZE[:spent], gp3:SIZE:IOPS:MiBps, io1:SIZE:IOPS, io2:SIZE:IOPS or unlimited"


@slotted
class Throttle:
    """The limits of a volume: I/Os and bytes per second, and its burst bucket if it has one."""

    # The sustained rate.
    iops: int
    bytes_per_s: int
    # The rate while the bucket has I/Os, None if the volume has no burst bucket.
    burst_iops: int | None = None
    # The capacity of the burst bucket. The bucket is full at first and fills at the sustained rate.
    burst_ios: int = 0


@slotted
class Volume:
    """A volume's size, throttle and kind."""

    size_bytes: int
    # The limits. None for an unlimited volume, which is as fast as the disk below it.
    throttle: Throttle | None
    # The kind of storage. None for an unlimited volume.
    kind: VolumeKind | None = None


def parse_volume(text: str) -> Volume:
    """Return the volume that a text names, as the option --volume takes it: KIND:SIZE and further limits.

    IOPS and throughput in the text are not checked against RDS's limits, so that an experiment can scale them. Limits
    that follow from the size are RDS's. Raises UsageError.

    >>> parse_volume("gp2:250GiB").throttle
    Throttle(iops=750, bytes_per_s=262144000, burst_iops=3000, burst_ios=5400000)
    """
    match text.split(":"):
        case ["unlimited"]:
            return Volume(size_bytes=_UNLIMITED_BYTES, throttle=None)
        case ["gp2", size, *spent] if spent in ([], ["spent"]):
            size_bytes = parse_size(size, option="--volume")
            return Volume(size_bytes=size_bytes, throttle=_make_gp2(size_bytes, is_full=not spent), kind="gp2")
        case ["gp3", size, iops, mib_per_s]:
            throttle = Throttle(iops=_count(iops, text), bytes_per_s=_count(mib_per_s, text) * MIB)
            return Volume(size_bytes=parse_size(size, option="--volume"), throttle=throttle, kind="gp3")
        case ["io1" | "io2" as kind, size, iops]:
            size_bytes, count = parse_size(size, option="--volume"), _count(iops, text)
            # A size below RDS's minimum has the figures of the minimum.
            provisioned: VolumeKind = "io2" if kind == "io2" else "io1"
            envelope = find_envelope(provisioned, max(size_bytes / GIB, 100))
            throttle = Throttle(iops=count, bytes_per_s=min(envelope.most_bytes_per_s, count * IO_BYTES))
            return Volume(size_bytes=size_bytes, throttle=throttle, kind=provisioned)
    raise _wrong(text)


def parse_size(text: str, *, option: str) -> int:
    """Return the bytes that a text such as 2GiB means, at least 256 MiB. Raises UsageError, which names the option.

    >>> parse_size("2GiB", option="--memory")
    2147483648
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(MiB|GiB|TiB)", text)
    size_bytes = round(float(match[1]) * _SIZES[match[2]]) if match is not None else 0
    if size_bytes < _LEAST_BYTES:
        raise UsageError(
            f'"{text}" is not a valid size for {option}', hint="Name at least 256MiB, as a number with MiB, GiB or TiB."
        )
    return size_bytes


def _make_gp2(size_bytes: int, *, is_full: bool) -> Throttle:
    envelope = find_envelope("gp2", size_bytes / GIB)
    throttle = Throttle(iops=envelope.least_iops, bytes_per_s=envelope.most_bytes_per_s)
    if envelope.bucket is None or not is_full:
        return throttle
    return Throttle(
        iops=throttle.iops,
        bytes_per_s=throttle.bytes_per_s,
        burst_iops=envelope.bucket.burst_iops,
        burst_ios=envelope.bucket.capacity_ios,
    )


def _count(text: str, volume: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,6}", text):
        raise _wrong(volume)
    return int(text)


def _wrong(text: str) -> UsageError:
    return UsageError(f'"{text}" is not a valid volume', hint=f"Name it as {_FORMS}; a size is a number with GiB.")
