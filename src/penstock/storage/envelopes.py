"""RDS's limits for volumes, by kind and size. envelopes.toml has the figures."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.errors import UsageError
from penstock.frozen import frozen
from penstock.storage.bucket import Bucket
from penstock.units import MIB

VolumeKind = Literal["gp2", "gp3", "io1", "io2", "magnetic"]

VOLUME_KINDS: tuple[VolumeKind, ...] = get_args(VolumeKind)


@frozen
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
    """Return three sizes of a kind of storage in GiB: the smallest, the first that RDS stripes, and the largest."""
    limits = _figures()[kind]
    first, last = (limits, limits) if kind == "gp2" else (limits["sizes"][0], limits["sizes"][-1])
    return first["least_gib"], _figures()["stripes"]["from_gib"], last["most_gib"]


def find_figure(kind: VolumeKind, name: str) -> int:
    """Return a figure of a kind of storage by its name in envelopes.toml."""
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
