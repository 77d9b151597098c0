"""`penstock storage` for volumes by recordings, and for RDS instances by CloudWatch's metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.main import main
from penstock.core.errors import AwsError, SourceError, UsageError
from penstock.rds.describe import describe_instance
from penstock.rds.metrics import read_instance_metrics
from penstock.rds.options import read_storage_options
from penstock.storage.report import report_instance
from penstock.storage.view import describe_plan
from penstock.watch.recordings import Recorder
from rds.conftest import REGION, put_metric
from support.fake_aws import NOW, FakeAws, cluster, instance
from support.made_samples import HEADER, sample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.core.values.device import CounterRow
    from penstock.rds.values import StorageOption
    from penstock.storage.report import StorageReport
    from rds.conftest import MotoRds


def device(at_s: float, iops: float) -> dict[str, Any]:
    """Return a reading of the data's device, which has written `iops` times 16 KiB a second since time 0."""
    return {
        "tablespace": "pg_default",
        "device": "sdb",
        "kind": "network",
        "at_s": at_s,
        "reads": 0,
        "read_bytes": 0,
        "read_s": 0.0,
        "writes": int(iops * at_s),
        "write_bytes": int(iops * at_s) * 16_384,
        "write_s": at_s,
        "busy_s": at_s,
        "queue_s": 2048 * at_s,
        "free_bytes": 10**9,
        "size_bytes": 10**10,
    }


def recorded(path: Path, rows: Sequence[dict[str, tuple[CounterRow, ...]]], started_at: datetime = NOW) -> Path:
    """Write a recording with a sample a second, on two CPUs of which a third of one is busy."""
    with Recorder(path, replace(HEADER, started_at=started_at.isoformat())) as recorder:
        for second, counters in enumerate(rows):
            recorder.write(sample(float(second), counters=counters, host_busy_cpus=1 / 3))
    return path


def article(path: Path) -> Path:
    """Write a recording of the article's load: 345 s at 750 IOPS."""
    return recorded(path, [{"host_devices": (device(float(second), 750),)} for second in range(346)])


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["storage", "plan", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_articles_recording_leads_to_its_volume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """gp2 of 250 GiB with a spent bucket: 1,500 GiB of gp2 make 57.5 s of 345 s."""
    path = article(tmp_path / "load")
    found = planned(capsys, "--volume", "gp2:250GiB:spent", "--recording", str(path))
    assert found["demand"]["limit"] == "volume-iops"
    (gp2,) = (each for each in found["candidates"] if each["storage"]["type"] == "gp2")
    assert (gp2["storage"]["size_gib"], gp2["limits"]["iops"], gp2["command"]) == (1500, 4500, None)
    assert gp2["elapsed_s"] == pytest.approx(57.5, rel=0.01)


def test_a_full_bucket_is_said_not_to_explain_the_articles_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And how to say that it was spent."""
    path = article(tmp_path / "load")
    assert main(["storage", "plan", "--volume", "gp2:250GiB", "--recording", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "The storage does not explain the 5 min 45 s" in shown
    assert "3,000 IOPS for 40 min 00 s" in shown


def test_the_newest_recording_is_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for penstock diagnose; `show` without a recording has the limits alone."""
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    (tmp_path / "recordings").mkdir()
    article(tmp_path / "recordings" / "1.recording")
    assert planned(capsys, "--volume", "gp3:100GiB:3000:125")["demand"]["limit"] is None
    assert main(["storage", "show", "--volume", "gp3:100GiB:3000:125", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["demand"] is None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--to", "host=localhost"], 2),
        (["--volume", "unlimited"], 2),
        (["--volume", "gp9:250GiB"], 2),
        (["orders", "--volume", "gp2:250GiB"], 2),
        (["--volume", "gp2:250GiB", "--recording", "RECORDING"], 4),
    ],
)
def test_storage_that_is_not_known_is_refused(
    arguments: list[str], code: int, tmp_path: Path, clean_aws: pytest.MonkeyPatch
) -> None:
    """And so is a recording without counters of the disk."""
    path = recorded(tmp_path / "empty", [{}, {}])
    assert main(["storage", "plan", *(str(path) if each == "RECORDING" else each for each in arguments)]) == code


def report(aws: FakeAws, wanted: str = "orders", recording: Path | None = None) -> StorageReport:
    """Return the plan of an instance of a fake AWS, whose metrics are of the minutes from NOW on."""
    described = describe_instance(wanted, now=NOW, make_clients=aws.make_clients)

    def ask(identifier: str, *, since: datetime, until: datetime, **_: object) -> list[CounterRow]:
        return read_instance_metrics(identifier, since=since, until=until, make_clients=aws.make_clients)

    def ask_options(identifier: str, *, region: str, **_: object) -> tuple[StorageOption, ...]:
        return read_storage_options(identifier, region=region, make_clients=aws.make_clients)

    until = NOW + timedelta(minutes=30)
    return report_instance(described, recording, needs_use=True, now=until, ask=ask, ask_options=ask_options)


def metrics(**values: float) -> dict[str, list[float]]:
    """Return ten minutes of 400 reads and 350 writes a second of 16 KiB, and of other metrics."""
    known = {"ReadIOPS": 400.0, "WriteIOPS": 350.0, "ReadThroughput": 6_553_600.0, "WriteThroughput": 5_734_400.0}
    return {f"orders {name}": [value] * 10 for name, value in (known | values).items()}


def test_magnetic_storage_has_a_plan_too() -> None:
    """AWS's name of it is standard."""
    raw = instance("orders", StorageType="standard", AllocatedStorage=100)
    del raw["Iops"], raw["StorageThroughput"]
    shown = "\n".join(describe_plan(report(FakeAws(instances=[raw], metrics=metrics()))))
    assert "orders: standard 100 GiB" in shown
    assert "--storage-type gp3 --allocated-storage" in shown


GP2 = {"StorageType": "gp2", "AllocatedStorage": 250, "Iops": 750}


def test_an_instances_use_is_that_of_cloudwatch() -> None:
    """A sixth of the processors busy, and a spent bucket: the same candidates, with commands, and autoscaling off."""
    given = metrics(BurstBalance=0.0, DiskQueueDepth=64.0, CPUUtilization=100 / 6)
    raw = instance("orders", **GP2, MaxAllocatedStorage=1000)
    found = report(FakeAws(instances=[raw], metrics=given))
    assert found.demand is not None
    assert (found.demand.limit, found.demand.elapsed_s, found.demand.balance_share) == ("volume-iops", 600, 0.0)
    assert [each.storage.type for each in found.candidates] == ["io1", "io2", "gp3", "gp2"]
    shown = "\n".join(describe_plan(found))
    start = f"aws rds modify-db-instance --region {REGION} --db-instance-identifier orders"
    assert f"{start} --allocated-storage 1500 --apply-immediately" in shown
    assert f"{start} --storage-type io1 --allocated-storage 250 --iops 5000 --apply-immediately" in shown
    assert f"{start} --max-allocated-storage 250 --apply-immediately" in shown
    assert "RDS copies all data" in shown


def option(kind: str, *sizes: tuple[int, int], iops: tuple[int, int] = (0, 0), **more: Any) -> dict[str, Any]:
    """Return a kind of storage as DescribeValidDBInstanceModifications has it."""
    ranges = [{"From": first, "To": last, "Step": 1} for first, last in sizes]
    provisioned = [{"From": iops[0], "To": iops[1], "Step": 1}]
    return {"StorageType": kind, "StorageSize": ranges, "ProvisionedIops": provisioned, **more}


@pytest.mark.part("rest")
def test_what_rds_allows_the_instance_limits_the_candidates() -> None:
    """No gp2 and no io2 for it, 3,000 IOPS of io1 at most, and gp3 by its ratios; a stand-in, since moto lacks it."""
    given = metrics(BurstBalance=0.0, DiskQueueDepth=64.0, CPUUtilization=25.0)
    allowed = [
        option("io1", (250, 250), (275, 6144), iops=(1000, 3000), IopsToStorageRatio=[{"From": 1.0, "To": 50.0}]),
        option(
            "gp3",
            (400, 65536),
            iops=(12000, 64000),
            ProvisionedStorageThroughput=[{"From": 500, "To": 4000}],
            StorageThroughputToIopsRatio=[{"From": 0.0, "To": 0.25}],
        ),
    ]
    aws = FakeAws(instances=[instance("orders", **GP2)], metrics=given, options={"orders": allowed})
    found = report(aws)
    assert [(each.storage.type, each.storage.iops) for each in found.candidates] == [("io1", 3000), ("gp3", 12_000)]
    shown = "\n".join(describe_plan(found))
    assert "RDS allows   io1 250 or 275 to 6,144 GiB, 1,000 to 3,000 IOPS" in shown
    assert "gp3 400 to 65,536 GiB, 12,000 to 64,000 IOPS, 500 to 4,000 MiB/s" in shown


@pytest.mark.parametrize("denied", [{}, {"DescribeValidDBInstanceModifications": "not for you"}])
def test_general_limits_are_used_if_rds_does_not_say_what_it_allows(denied: dict[str, str]) -> None:
    """The role may not ask, or the instance is in a state in which RDS does not tell; the report says so."""
    given = metrics(BurstBalance=0.0, DiskQueueDepth=64.0, CPUUtilization=100 / 6)
    found = report(FakeAws(instances=[instance("orders", **GP2)], metrics=given, denied=denied))
    assert [each.storage.type for each in found.candidates] == ["io1", "io2", "gp3", "gp2"]
    (line,) = (line for line in describe_plan(found) if "RDS allows" in line)
    assert "not known, so RDS's general limits are used: AWS refused or did not answer rds:Desc" in line


def test_a_full_balance_by_cloudwatch_is_not_taken_as_spent() -> None:
    """750 IOPS of 3,000 are no limit, although requests wait."""
    found = report(FakeAws(instances=[instance("orders", **GP2)], metrics=metrics(BurstBalance=99.0, DiskQueueDepth=9)))
    assert found.demand is not None
    assert (found.demand.limit, found.candidates) == (None, ())


def recorded_metrics(path: Path, minutes: Sequence[int], **more: Any) -> Path:
    """Write a recording with metrics of the instance orders at its 750 IOPS, as CloudWatch gave them."""
    rows = [
        {
            "instance": "orders",
            "measured_at": (NOW + timedelta(minutes=minute)).isoformat(),
            "period_s": 60,
            "ReadIOPS": 0.0,
            "WriteIOPS": 750.0,
            "ReadThroughput": 0.0,
            "WriteThroughput": 12_288_000.0,
            **more,
        }
        for minute in minutes
    ]
    return recorded(path, [{"rds_metrics": tuple(rows)}, {}])


def test_metrics_in_the_recording_are_used_if_cloudwatch_has_none(tmp_path: Path) -> None:
    """Late rows stand at their own time, and a row that was read twice counts once."""
    path = recorded_metrics(tmp_path / "watched", (2, 0, 1, 1))
    found = report(FakeAws(instances=[instance("orders", **GP2)]), recording=path)
    assert found.demand is not None
    assert found.demand.elapsed_s == 180


@pytest.mark.parametrize("more", [{"instance": "billing"}, {"period_s": 0}])
def test_metrics_that_are_not_of_the_instance_or_of_no_time_are_not_used(tmp_path: Path, more: dict[str, Any]) -> None:
    """The recording is of another instance, or its rows cover no time."""
    path = recorded_metrics(tmp_path / "watched", (0, 1), **more)
    with pytest.raises(SourceError, match="has no use of the storage of orders"):
        report(FakeAws(instances=[instance("orders", **GP2)]), recording=path)


def test_an_instance_without_metrics_is_refused() -> None:
    """Denied, or not there yet."""
    aws = FakeAws(instances=[instance("orders", **GP2)])
    with pytest.raises(SourceError):
        report(aws)
    aws.denied["GetMetricStatistics"] = "not for you"
    with pytest.raises(AwsError):
        report(aws)


@pytest.mark.part("rest")
@pytest.mark.parametrize("engine", ["aurora-postgresql", "postgres"])
def test_a_cluster_is_refused(engine: str) -> None:
    """Aurora's volume has no limits of its own; a Multi-AZ DB cluster is changed as a whole."""
    aws = FakeAws(
        instances=[instance("shop-1", DBClusterIdentifier="shop", Engine=engine)],
        clusters=[cluster("shop", ["shop-1"], Engine=engine)],
    )
    with pytest.raises(UsageError, match="the storage of shop cannot be planned"):
        report(aws, "shop")


@pytest.mark.part("rest")
def test_motos_instance_is_planned(moto_rds: MotoRds, capsys: pytest.CaptureFixture[str]) -> None:
    """Over HTTP: gp3 at its 12,000 IOPS in one minute; the class allows no more, so another volume does not help."""
    at = datetime.now(UTC) - timedelta(minutes=10)
    for name, value in (("ReadIOPS", 12_000), ("WriteIOPS", 0), ("ReadThroughput", 9.8e7), ("WriteThroughput", 0)):
        put_metric(moto_rds.url, "orders", name, value, at=at)
    put_metric(moto_rds.url, "orders", "CPUUtilization", 10, at=at)
    found = planned(capsys, moto_rds.instance)
    assert (found["demand"]["limit"], found["demand"]["elapsed_s"]) == ("volume-iops", 60)
    assert found["storage"]["iops"] == 12_000
