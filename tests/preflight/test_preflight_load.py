"""A planned load against disks, volumes that grow, and windows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from penstock.core.catalogue.catalog import DiskForecast, SpaceNeed
from penstock.loading.plan.space import DiskSpace
from penstock.preflight.findings import judge_disks, judge_volume, judge_windows
from penstock.rds.describe import describe_instance
from support.fake_aws import NOW, FakeAws, instance

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.rds.values import RdsDescription

GIB = 2**30


def orders(**more: object) -> RdsDescription:
    """Return an instance of 400 GiB whose windows are early on Tuesday and early each day."""
    given = {"PreferredMaintenanceWindow": "tue:04:00-tue:04:30", "PreferredBackupWindow": "03:00-03:30"}
    aws = FakeAws(instances=[instance("orders", **given, **more)])
    return describe_instance("orders", now=NOW, make_clients=aws.make_clients)


def forecast(needed_gib: int, *, free_gib: int = 100) -> DiskForecast:
    need = SpaceNeed(path="v", what="table t", needed_bytes=needed_gib * GIB)
    return DiskForecast(device="the volume", free_bytes=free_gib * GIB, needs=(need,))


def judged(disk: DiskForecast, *, ceiling_gib: int | None = None) -> Diagnosis:
    found = orders() if ceiling_gib is None else orders(MaxAllocatedStorage=ceiling_gib)
    assert found.instance is not None
    assert found.instance.storage is not None
    (finding,) = judge_volume(disk, found.instance.storage, found)
    return finding


def test_disk_that_would_be_filled_is_a_refusal_with_the_way_round() -> None:
    """One of which more than half would be taken is a warning; otherwise it is said how much is needed."""
    short, tight, enough = judge_disks(DiskSpace(disks=(forecast(200), forecast(51), forecast(10))))
    assert (short.severity, tight.severity, enough.severity) == ("refusal", "warning", "ok")
    assert short.remedy is not None
    assert "--ignore-space" in short.remedy
    assert enough.claim == "the volume: 10.7 GB expected of 107 GB free (table t: 10.7 GB)"


@pytest.mark.parametrize(
    ("needed_gib", "ceiling_gib", "severity"),
    [
        (49, None, "ok"),
        (99, None, "warning"),
        (101, None, "refusal"),
        (101, 1000, "warning"),
        (700, 1000, "warning"),
        (701, 1000, "refusal"),
    ],
)
def test_volume_may_grow_up_to_its_ceiling(needed_gib: int, ceiling_gib: int | None, severity: str) -> None:
    """600 GiB more than the 100 that are free, at the most."""
    assert judged(forecast(needed_gib), ceiling_gib=ceiling_gib).severity == severity


def test_volume_that_is_too_small_names_the_command() -> None:
    """For what is missing, and a fifth of what there is."""
    found = judged(forecast(150))
    assert found.remedy == (
        "aws rds modify-db-instance --db-instance-identifier orders --allocated-storage 530 --apply-immediately "
        "--region eu-west-1"
    )


def test_need_that_cannot_be_told_is_a_note() -> None:
    """A pipe has no size."""
    assert judged(DiskForecast(device="the volume", free_bytes=GIB, needs=())).severity == "note"


def test_window_that_is_near_is_a_note() -> None:
    """Early on Sunday only the backup's; at noon of the day before none."""
    (found,) = judge_windows(orders(), now=NOW + timedelta(hours=13))
    assert found.severity == "note"
    assert found.claim == "the backup window of instance orders begins at Sun 03:00 UTC, in 2 h 00 min"
    assert list(judge_windows(orders(), now=NOW)) == []
