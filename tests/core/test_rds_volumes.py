"""What RDS's volumes deliver, against cases computed by hand."""

from __future__ import annotations

import math

import pytest

from penstock.core.errors import UsageError
from penstock.core.units import GIB, MIB
from penstock.rds.volumes import Bucket, Throttle, Volume, find_envelope, parse_size, parse_volume

# 3 I/Os/s for each of 250 GiB
_BUCKET = Bucket(capacity_ios=5_400_000, baseline_iops=750, burst_iops=3000)


def test_a_full_bucket_of_250_gib_lasts_2400_seconds() -> None:
    """5.4 M / (3000 - 750)."""
    assert find_envelope("gp2", 250).bucket == _BUCKET
    assert _BUCKET.burst_s(5_400_000) == 2400


@pytest.mark.parametrize(
    ("balance_ios", "demand_iops", "elapsed_s", "done_ios", "left_ios"),
    [
        # The article's load of 345 s is over before a full bucket is empty.
        (5_400_000, 5000, 345, 1_035_000, 5_400_000 - 345 * 2250),
        # Empty: the baseline.
        (0, 5000, 60, 45_000, 0),
        # 2,400 s at 3,000 IOPS, then 100 s at 750.
        (5_400_000, 3000, 2500, 2400 * 3000 + 100 * 750, 0),
        # Half the baseline: what is not used is saved, up to the capacity.
        (0, 375, 100, 37_500, 37_500),
        (5_400_000, 0, 100, 0, 5_400_000),
    ],
)
def test_a_volume_does_what_its_balance_lets_it_do(
    balance_ios: float, demand_iops: float, elapsed_s: float, done_ios: float, left_ios: float
) -> None:
    """Above the baseline the bucket pays, below it the bucket earns."""
    found = _BUCKET.run(balance_ios=balance_ios, demand_iops=demand_iops, elapsed_s=elapsed_s)
    assert found == pytest.approx((done_ios, left_ios))


@pytest.mark.parametrize(
    ("balance_ios", "ios", "least_s", "elapsed_s", "left_ios"),
    [
        # Empty: the baseline of 750, although 3,000 are asked for.
        (0, 258_750, 86.25, 345, 0),
        # Full: the burst, for which 2,250 a second are spent.
        (5_400_000, 258_750, 0, 86.25, 5_400_000 - 86.25 * 2250),
        # 2 s at 3,000 IOPS, then 4 s at 750.
        (4500, 9000, 0, 6, 0),
        # Less than the baseline earns what is not used.
        (0, 375, 1, 1, 375),
    ],
)
def test_a_volume_takes_as_long_as_its_balance_lets_it(
    balance_ios: float, ios: float, least_s: float, elapsed_s: float, left_ios: float
) -> None:
    """The inverse of what it does in a time."""
    found = _BUCKET.take(balance_ios=balance_ios, ios=ios, least_s=least_s)
    assert found == pytest.approx((elapsed_s, left_ios))


def test_a_volume_whose_baseline_is_its_burst_never_runs_dry() -> None:
    """4,000 GiB in four stripes: 3,000 each."""
    envelope = find_envelope("gp2", 4000)
    assert (envelope.least_iops, envelope.most_iops, envelope.bucket) == (12_000, 12_000, None)
    assert Bucket(capacity_ios=1, baseline_iops=12_000, burst_iops=12_000).burst_s(0) == math.inf


@pytest.mark.parametrize(
    ("kind", "size_gib", "volumes", "least_iops", "most_iops", "most_mib_per_s"),
    [
        ("gp2", 20, 1, 100, 3000, 128),
        ("gp2", 399, 1, 1197, 3000, 250),
        ("gp2", 400, 4, 1200, 12_000, 512),
        ("gp2", 1336, 4, 4008, 12_000, 1000),
        ("gp2", 65_536, 4, 64_000, 64_000, 1000),
        ("gp3", 399, 1, 3000, 3000, 125),
        ("gp3", 400, 4, 12_000, 64_000, 4000),
        ("io1", 399.5, 1, 1000, 19_950, 500),
        ("io2", 400, 4, 1000, 256_000, 4000),
        ("standard", 100, 1, 100, 1000, 90),
    ],
)
def test_an_envelope_is_what_rds_has_for_the_size(
    kind: str, size_gib: float, volumes: int, least_iops: int, most_iops: int, most_mib_per_s: int
) -> None:
    """Four volumes from 400 GiB."""
    found = find_envelope(kind, size_gib)  # type: ignore[arg-type]
    assert (found.volumes, found.least_iops, found.most_iops) == (volumes, least_iops, most_iops)
    assert found.most_bytes_per_s == most_mib_per_s * MIB


def test_a_size_that_rds_does_not_have_is_refused() -> None:
    """With the sizes that it has."""
    with pytest.raises(UsageError, match="io1 does not have 50 GiB") as caught:
        find_envelope("io1", 50)
    assert caught.value.detail == "RDS has io1 from 100 to 65536 GiB"


@pytest.mark.parametrize(
    ("text", "size_gib", "throttle"),
    [
        ("gp2:250GiB:spent", 250, Throttle(iops=750, bytes_per_s=250 * MIB)),
        (
            "gp2:400GiB",
            400,
            Throttle(iops=1200, bytes_per_s=512 * MIB, burst_iops=12_000, burst_ios=21_600_000),
        ),
        ("gp3:1TiB:625:70", 1024, Throttle(iops=625, bytes_per_s=70 * MIB)),
        ("io1:0.5GiB:1000", 0.5, Throttle(iops=1000, bytes_per_s=250 * MIB)),
        ("unlimited", 64, None),
    ],
)
def test_a_volume_is_read_from_its_text(text: str, size_gib: float, throttle: Throttle | None) -> None:
    """IOPS that are named are taken as they are."""
    kind = None if throttle is None else text.partition(":")[0]
    assert parse_volume(text) == Volume(size_bytes=round(size_gib * GIB), throttle=throttle, kind=kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "gp2", "gp2:250", "gp2:250GiB:full", "gp3:1GiB:0:5", "io1:1GiB", "st1:500GiB"])
def test_a_text_that_names_no_volume_is_refused(text: str) -> None:
    """With a hint at what does."""
    with pytest.raises(UsageError, match="is not a valid") as caught:
        parse_volume(text)
    assert caught.value.hint is not None


def test_a_size_below_what_a_server_needs_is_refused() -> None:
    """And one without a unit."""
    for text in ("255MiB", "1000000000", "1GB"):
        with pytest.raises(UsageError, match="for --memory"):
            parse_size(text, option="--memory")
