"""A volume as `penstock lab up --volume` names it, and the throttle that limits the speed of its file. Pure."""

from __future__ import annotations

import re

from penstock.errors import UsageError
from penstock.frozen import frozen
from penstock.storage.envelopes import VolumeKind, find_envelope
from penstock.units import GIB, MIB

# A larger I/O counts as several I/Os (EBS User Guide, I/O characteristics).
IO_BYTES = 256 * 1024

# The size of an unlimited volume's file. The file is sparse: it uses only the space that is written.
_UNLIMITED_BYTES = 64 * GIB
# The space that ext4 and an empty PostgreSQL with its WAL need.
_LEAST_BYTES = 256 * MIB
_SIZES = {"MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}

_FORMS = "gp2:SIZE[:spent], gp3:SIZE:IOPS:MiBps, io1:SIZE:IOPS, io2:SIZE:IOPS or unlimited"


@frozen
class Throttle:
    """The limits of a volume."""

    # The sustained rate.
    iops: int
    bytes_per_s: int
    # The rate while the bucket has I/Os, None if the volume has no burst bucket.
    burst_iops: int | None = None
    # The capacity of the burst bucket. The bucket is full at first and fills at the sustained rate.
    burst_ios: int = 0


@frozen
class Volume:
    """A volume's size, throttle and kind."""

    size_bytes: int
    # None for an unlimited volume, which is as fast as the disk below it.
    throttle: Throttle | None
    # None for an unlimited volume.
    kind: VolumeKind | None = None


def parse_volume(text: str) -> Volume:
    """Return the volume that a text names. Raises UsageError.

    IOPS and throughput in the text are not checked against RDS's limits, so that an experiment can scale them. Figures
    that follow from the size are RDS's.

    >>> parse_volume("gp2:250GiB").throttle
    Throttle(iops=750, bytes_per_s=262144000, burst_iops=3000, burst_ios=5400000)
    """
    match text.split(":"):
        case ["unlimited"]:
            return Volume(size_bytes=_UNLIMITED_BYTES, throttle=None)
        case ["gp2", size, *spent] if spent in ([], ["spent"]):
            size_bytes = parse_size(size, option="--volume")
            return Volume(size_bytes=size_bytes, throttle=_gp2(size_bytes, is_full=not spent), kind="gp2")
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
    """Return a size in bytes. Raises UsageError.

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


def _gp2(size_bytes: int, *, is_full: bool) -> Throttle:
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
