"""The limits of RDS storage, computed by hand."""

from __future__ import annotations

import pytest

from penstock.core.units import MIB
from penstock.core.values.device import VolumeLimits
from penstock.rds.values import EbsLimits, Storage
from penstock.rds.volumes import find_volume_limits


def stored(kind: str | None, size_gib: int, *, iops: int | None = None, mib: int | None = None) -> Storage:
    return Storage(type=kind, size_gib=size_gib, iops=iops, throughput_mib_per_s=mib, ceiling_gib=None, free_bytes=None)


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        (
            stored("gp2", 250),
            VolumeLimits(iops=750, bytes_per_s=250 * MIB, burst_iops=3000, burst_ios=5_400_000),
        ),
        # Four stripes of 375 GiB, each with a bucket of its own.
        (
            stored("gp2", 1500),
            VolumeLimits(iops=4500, bytes_per_s=1000 * MIB, burst_iops=12_000, burst_ios=21_600_000),
        ),
        (stored("io1", 500, iops=10_000), VolumeLimits(iops=10_000, bytes_per_s=4000 * MIB)),
        (stored("gp3", 400, iops=12_000, mib=500), VolumeLimits(iops=12_000, bytes_per_s=500 * MIB)),
        (stored("gp3", 100), VolumeLimits(iops=3000, bytes_per_s=125 * MIB)),
        (stored("aurora", 100), None),
        (stored("io1", 1), None),
    ],
)
def test_limits_follow_from_kind_and_size(storage: Storage, expected: VolumeLimits | None) -> None:
    """A burst balance belongs to gp2 alone; an unknown kind or size has no limits."""
    assert find_volume_limits(storage, None) == expected


def test_the_instance_has_sustained_limits_of_its_own() -> None:
    """A db.r6g.2xlarge; its burst of half an hour a day is no limit to plan with."""
    ebs = EbsLimits(baseline_mb_per_s=296.875, baseline_iops=12_000, maximum_mb_per_s=593.75, maximum_iops=20_000)
    found = find_volume_limits(stored("io1", 500, iops=20_000), ebs)
    assert found is not None
    assert (found.instance_iops, found.instance_bytes_per_s) == (12_000, 296_875_000)
