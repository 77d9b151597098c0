"""A planned load against disks, volumes that grow, and windows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from penstock.aws.rds import describe_instance
from penstock.errors import AwsError, TargetError
from penstock.loading.preflight_load import judge_disks, judge_volume, judge_windows, refuse_windows
from penstock.model.space import DiskForecast, SpaceNeed
from support.fake_aws import NOW, FakeAws, cluster, instance, member

if TYPE_CHECKING:
    from penstock.model.finding import Finding
    from penstock.model.rds import RdsDescription

GIB = 2**30


def orders(**more: object) -> RdsDescription:
    """Return an instance of 400 GiB whose windows are early on Tuesday and early each day."""
    given = {"PreferredMaintenanceWindow": "tue:04:00-tue:04:30", "PreferredBackupWindow": "03:00-03:30"}
    aws = FakeAws(instances=[instance("orders", **given, **more)])
    return describe_instance("orders", now=NOW, make_clients=aws.make_clients)


def forecast(needed_gib: int, *, free_gib: int = 100) -> DiskForecast:
    need = SpaceNeed(path="v", what="table t", needed_bytes=needed_gib * GIB)
    return DiskForecast(device="the volume", free_bytes=free_gib * GIB, needs=(need,))


def judged(disk: DiskForecast, *, ceiling_gib: int | None = None) -> Finding:
    found = orders() if ceiling_gib is None else orders(MaxAllocatedStorage=ceiling_gib)
    assert found.instance is not None
    assert found.instance.storage is not None
    (finding,) = judge_volume(disk, found.instance.storage, found)
    return finding


def test_disk_that_would_be_filled_is_a_refusal_with_the_way_round() -> None:
    """One of which more than half would be taken is a warning; otherwise it is said how much is needed."""
    short, tight, enough = judge_disks([forecast(200), forecast(51), forecast(10)])
    assert (short.severity, tight.severity, enough.severity) == ("refusal", "warning", "ok")
    assert short.remedy is not None
    assert "--ignore-space" in short.remedy
    assert enough.text == "the volume: 10.7 GB expected of 107 GB free (table t: 10.7 GB)"


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


def test_load_that_meets_windows_names_times_and_the_command() -> None:
    """From Saturday noon: a backup after 15 hours, maintenance on Tuesday."""
    (found,) = judge_windows(orders(), now=NOW, expected=timedelta(hours=16))
    assert found.severity == "refusal"
    assert found.text == (
        "a load of 16 h 00 min that begins now meets the backup window of instance orders: Sun 2026-11-22 03:00 to "
        "03:30 UTC"
    )
    assert found.remedy == (
        "Say --ignore-windows to load all the same. Start it at Sun 03:30 UTC. Move the window: "
        "aws rds modify-db-instance --db-instance-identifier orders "
        "--preferred-backup-window 04:30-05:00 --region eu-west-1"
    )


def test_way_round_that_does_not_help_is_not_named() -> None:
    """Three days meet a daily window whenever they begin, and wherever it is moved; maintenance can be moved."""
    backup, maintenance = judge_windows(orders(), now=NOW, expected=timedelta(days=3))
    assert backup.remedy == "Say --ignore-windows to load all the same."
    assert maintenance.remedy is not None
    assert maintenance.remedy.startswith("Say --ignore-windows to load all the same. Move the window: ")


def test_refusal_names_all_windows_and_the_way_round() -> None:
    """In the order of time."""
    error = refuse_windows(orders(), now=NOW, expected=timedelta(days=3))
    assert error is not None
    assert error.message == "a load of 72 h 00 min that begins now would meet a backup window"
    assert error.detail == (
        "backup window of instance orders: Sun 2026-11-22 03:00 to 03:30 UTC; "
        "maintenance window of instance orders: Tue 2026-11-24 04:00 to 04:30 UTC."
    )
    assert error.hint == "Say --ignore-windows to load all the same."


def test_load_that_meets_no_window_is_fine() -> None:
    """It is over before."""
    assert refuse_windows(orders(), now=NOW, expected=timedelta(hours=15)) is None
    (found,) = judge_windows(orders(), now=NOW, expected=timedelta(hours=15))
    assert found.severity == "ok"


def test_windows_of_a_cluster_that_was_not_told_are_not_taken_for_none() -> None:
    """An instance of it was; what it meets itself counts all the same."""
    aws = FakeAws(
        instances=[member("shop-1", "shop", PreferredMaintenanceWindow="tue:04:00-tue:04:30")],
        clusters=[cluster("shop", ["shop-1"], PreferredMaintenanceWindow="sat:13:00-sat:13:30")],
    )
    expected = timedelta(hours=15)
    told = describe_instance("shop-1", now=NOW, is_brief=True, make_clients=aws.make_clients)
    assert isinstance(refuse_windows(told, now=NOW, expected=expected), TargetError)
    aws.denied = {"DescribeDBClusters": "not for you"}
    untold = describe_instance("shop-1", now=NOW, is_brief=True, make_clients=aws.make_clients)
    error = refuse_windows(untold, now=NOW, expected=expected)
    assert isinstance(error, AwsError)
    assert error.message == "AWS does not tell all of them. rds:DescribeDBClusters: AccessDenied: not for you"
    assert isinstance(refuse_windows(untold, now=NOW, expected=timedelta(days=4)), TargetError)


def test_window_that_is_open_is_told_without_a_duration() -> None:
    """Any load would meet it; otherwise the next one is named."""
    (open_now,) = judge_windows(orders(), now=NOW.replace(hour=3, minute=10), expected=None)
    assert open_now.severity == "warning"
    assert open_now.text.startswith("any load that begins now meets the backup window")
    (coming,) = judge_windows(orders(), now=NOW, expected=None)
    assert coming.severity == "note"
    assert coming.text == "next comes the backup window of instance orders: Sun 2026-11-22 03:00 to 03:30 UTC"
    assert coming.remedy is not None


def test_server_without_windows_has_nothing_to_meet() -> None:
    """Or none that could be read."""
    found = orders()
    bare = describe_instance(
        "orders",
        now=NOW,
        make_clients=FakeAws(
            instances=[instance("orders", PreferredMaintenanceWindow="", BackupRetentionPeriod=0)]
        ).make_clients,
    )
    assert found.windows
    assert list(judge_windows(bare, now=NOW, expected=timedelta(days=8))) == []
