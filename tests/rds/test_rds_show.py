"""`penstock rds show`: how it looks, what it takes, what it says when it cannot."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli.main import main
from penstock.rds.describe import describe_instance
from penstock.rds.view import describe_lines, description_object
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, cluster, instance, member

if TYPE_CHECKING:
    from rds.conftest import MotoRds


def shown(aws: FakeAws, wanted: str) -> str:
    return "\n".join(describe_lines(describe_instance(wanted, now=NOW, make_clients=aws.make_clients)))


INSTANCE = """\
orders: RDS instance, PostgreSQL 16.4, modifying in eu-west-1
  endpoint             orders.c7tj4example.eu-west-1.rds.amazonaws.com:5432
  resource id          db-ORDERSAAAAAAAAAAAAAAAAAAAA
  public access        none
  class                db.r6gd.2xlarge, 8 vCPUs, 64 GiB memory, 474 GB local storage
  network              2.5 Gbit/s; in bursts 10 Gbit/s
  EBS limits           297 MB/s, 12,000 IOPS; in bursts 594 MB/s, 20,000 IOPS
  storage              gp3, 400 GiB, 12,000 IOPS, 500 MiB/s; 312.0 GiB free; grows up to 1,000 GiB
  local storage        200 reads/s 1.64 MB/s 0.25 ms each, 472 GB free
  Optimized Reads      on: temporary files on 474 GB of local storage
  Multi-AZ             no standby
  replica of           main
  parameter group      loads: pending-reboot, shared by 3 instances, also a, b
  maintenance window   sun:23:45-mon:00:15 UTC
                       aws rds modify-db-instance --db-instance-identifier orders \\
                         --preferred-maintenance-window DAY:HH:MM-DAY:HH:MM
  backup window        03:00-03:30 UTC, kept 7 days
  IAM authentication   off
  roles                s3Import arn:aws:iam::111122223333:role/in ACTIVE
                       s3Export arn:aws:iam::111122223333:role/out INVALID
  pending changes      AllocatedStorage: 500
                       DBInstanceClass: db.r6gd.4xlarge
  pending maintenance  system-update (next-maintenance), scheduled for 2026-11-24 12:00 UTC: \
New Operating System update"""

BUSY_VOLUMES = """\
  storage            io2, 6,000 GiB, 12,000 IOPS, 500 MiB/s; not known how much is free; does not grow
  storage operation  optimizing, 43 % done
  log volume         dedicated: pg_wal has a volume of its own
  file system        RDS recommends an upgrade, by a blue/green deployment or a read replica"""


def test_what_happens_to_volumes_is_shown_below_them() -> None:
    """The fields of botocore's model that only some instances have."""
    raw = instance(
        "orders",
        StorageType="io2",
        AllocatedStorage=6000,
        StorageOperationStatus="Optimizing",
        StorageOperationPercentProgress=43,
        IsStorageConfigUpgradeAvailable=True,
        DedicatedLogVolume=True,
    )
    lines = shown(FakeAws(instances=[raw]), "orders").splitlines()
    labels = {line.split("  ")[1]: line for line in lines if line.startswith("  ") and line[2] != " "}
    names = ("storage", "storage operation", "log volume", "file system")
    words = [labels[name].split() for name in names]
    assert words == [line.split() for line in BUSY_VOLUMES.splitlines()]


CLUSTER = """\
shop: Aurora cluster, Aurora PostgreSQL 16.4, available in eu-west-1
  endpoint             shop.cluster-c7tj4example.eu-west-1.rds.amazonaws.com
  reader endpoint      shop.cluster-ro-c7tj4example.eu-west-1.rds.amazonaws.com
  resource id          cluster-SHOPAAAAAAAAAAAAAAAAAAAAAA
  members              shop-1 (writer), shop-2 (reader), shop-3 (reader)
  storage              Aurora Standard, grows automatically
  serverless           0.5 to 16 capacity units of 2 GiB memory
  parameter group      default.aurora-postgresql16: in-sync, AWS's own, cannot be changed
  maintenance window   sun:23:45-mon:00:15 UTC
                       aws rds modify-db-cluster --db-cluster-identifier shop \\
                         --preferred-maintenance-window DAY:HH:MM-DAY:HH:MM
  backup window        05:00-05:30 UTC, kept 7 days
  IAM authentication   off
  roles                none
  pending changes      none
  pending maintenance  none

shop-2: reader, Aurora PostgreSQL 16.4, available in eu-west-1
  endpoint             shop-2.c7tj4example.eu-west-1.rds.amazonaws.com:5432
  resource id          db-SHOP2AAAAAAAAAAAAAAAAAAAAA
  public access        none
  class                db.r6g.2xlarge, 8 vCPUs
  Optimized Reads      not known: the local storage of db.r6g.2xlarge could not be read
  parameter group      default.postgres16: in-sync, AWS's own, cannot be changed
  maintenance window   tue:04:00-tue:04:30 UTC
                       aws rds modify-db-instance --db-instance-identifier shop-2 \\
                         --preferred-maintenance-window DAY:HH:MM-DAY:HH:MM
  pending changes      none
  pending maintenance  none

the endpoint leads to one of: shop-2, shop-3

not reported by AWS
  cloudwatch:GetMetricStatistics  AccessDenied: not for you
  ec2:DescribeInstanceTypes       AccessDenied: not for you"""


def test_class_with_local_storage_is_shown_with_the_command_that_changes_to_it() -> None:
    """As docs/rds.md shows it; where AWS does not offer it, there is nothing to show."""
    aws = FakeAws(instances=[instance("orders")], orderable=["db.r6gd.2xlarge"])
    page = Path(__file__).parents[2] / "docs" / "rds.md"
    block = page.read_text(encoding="utf-8").partition("```text\n  Optimized Reads")[2].partition("```")[0]
    assert f"  Optimized Reads{block.rstrip()}" in shown(aws, "orders")
    aws.orderable.clear()
    assert "with local storage" not in shown(aws, "orders")


@pytest.mark.part("rest")
@pytest.mark.parametrize(("mode", "other"), [("standard", "advanced"), ("advanced", "standard")])
def test_mode_of_database_insights_is_shown_with_the_command_that_changes_it(mode: str, other: str) -> None:
    """As docs/rds.md shows it; a cluster has one mode, and an instance of which AWS reports none has no row."""
    found = shown(FakeAws(instances=[instance("orders", DatabaseInsightsMode=mode)]), "orders")
    assert f"Database Insights    {mode}\n" in found
    assert f"--database-insights-mode {other}" in found
    page = (Path(__file__).parents[2] / "docs" / "rds.md").read_text(encoding="utf-8")
    block = page.partition("```text\n  Database Insights")[2].partition("```")[0]
    assert (f"  Database Insights{block.rstrip()}" in found) == (mode == "standard")
    members = [member("shop-1", "shop", DatabaseInsightsMode=mode)]
    found = shown(FakeAws(instances=members, clusters=[cluster("shop", ["shop-1"])]), "shop")
    assert "aws rds modify-db-cluster --db-cluster-identifier shop" in found
    assert "Database Insights" not in shown(FakeAws(instances=[instance("orders")]), "orders")


def test_instance_is_shown_in_columns() -> None:
    """All that may be there to see."""
    group = [{"DBParameterGroupName": "loads", "ParameterApplyStatus": "pending-reboot"}]
    roles = [("s3Import", "in", "ACTIVE"), ("s3Export", "out", "INVALID")]
    raw = instance(
        "orders",
        DBInstanceStatus="modifying",
        DBInstanceClass="db.r6gd.2xlarge",
        MaxAllocatedStorage=1000,
        ReadReplicaSourceDBInstanceIdentifier="main",
        PreferredMaintenanceWindow="sun:23:45-mon:00:15",
        DBParameterGroups=group,
        PendingModifiedValues={"AllocatedStorage": 500, "DBInstanceClass": "db.r6gd.4xlarge"},
        AssociatedRoles=[
            {"FeatureName": feature, "RoleArn": f"arn:aws:iam::111122223333:role/{name}", "Status": status}
            for feature, name, status in roles
        ],
    )
    action = {
        "Action": "system-update",
        "OptInStatus": "next-maintenance",
        "CurrentApplyDate": NOW + timedelta(days=3),
        "Description": "New Operating System update",
    }
    aws = FakeAws(
        instances=[raw, instance("a", DBParameterGroups=group), instance("b", DBParameterGroups=group)],
        metrics={
            "orders FreeStorageSpace": [312.0 * 2**30],
            "orders FreeLocalStorage": [440.0 * 2**30],
            "orders ReadIOPSLocalStorage": [200.0],
            "orders ReadThroughputLocalStorage": [1638400.0],
            "orders ReadLatencyLocalStorage": [0.00025],
        },
        maintenance={raw["DBInstanceArn"]: [action]},
    )
    assert shown(aws, "orders") == INSTANCE


def test_cluster_and_the_instance_behind_its_endpoint_are_shown() -> None:
    """And what was denied, at the end."""
    names = ["shop-1", "shop-2", "shop-3"]
    capacity = {"MinCapacity": 0.5, "MaxCapacity": 16.0}
    aws = FakeAws(
        instances=[member(name, "shop") for name in names],
        clusters=[cluster("shop", names, ServerlessV2ScalingConfiguration=capacity)],
        denied={"DescribeInstanceTypes": "not for you", "GetMetricStatistics": "not for you"},
    )
    assert shown(aws, f"shop.cluster-ro-{ACCOUNT}.{REGION}.rds.amazonaws.com") == CLUSTER


def test_what_is_not_known_is_said() -> None:
    """An instance that is being made has no endpoint yet, and no backups is not the same as not known."""
    raw = instance("orders", BackupRetentionPeriod=0, DBParameterGroups=[{"DBParameterGroupName": "loads"}])
    del raw["Endpoint"]
    aws = FakeAws(instances=[raw], types=[])
    text = shown(aws, "orders")
    assert "endpoint             not known" in text
    assert "backup window        no backups" in text
    assert (
        "storage              gp3, 400 GiB, 12,000 IOPS, 500 MiB/s; not known how much is free; does not grow" in text
    )
    assert "parameter group      loads: not known, not shared" in text
    assert "ec2:DescribeInstanceTypes       InvalidInstanceType: The following" in text


@pytest.mark.part("rest")
def test_json_has_windows_and_times_as_text() -> None:
    """So that it can be written, and read again."""
    raw = instance("orders")
    action = {"Action": "system-update", "ForcedApplyDate": NOW}
    aws = FakeAws(instances=[raw], maintenance={raw["DBInstanceArn"]: [action]})
    found = json.loads(
        json.dumps(description_object(describe_instance("orders", now=NOW, make_clients=aws.make_clients)))
    )
    assert found["instance"]["maintenance_window"] == "tue:04:00-tue:04:30"
    assert found["instance"]["pending_maintenance"][0]["forced_at"] == "2026-11-21T12:00:00+00:00"
    assert found["cluster"] is None


@pytest.mark.part("rest")
@pytest.mark.parametrize("is_by_to", [True, False])
def test_show_takes_the_endpoint_or_the_host_of_a_target(
    moto_rds: MotoRds, capfd: pytest.CaptureFixture[str], is_by_to: bool
) -> None:
    """By HTTP, and without a secret in what is shown."""
    given = ["--to", f"host={moto_rds.instance} password=planted-password"] if is_by_to else [moto_rds.instance]
    assert main(["rds", "show", *given, "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["instance"]["identifier"] == "orders"
    assert "planted" not in out + err
    assert ("can read the password in --to" in err) is is_by_to


def test_show_takes_pghost(
    moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of several hosts the first that is RDS's."""
    monkeypatch.setenv("PGHOST", f"/var/run/postgresql,standby.example.com,{moto_rds.reader}")
    assert main(["rds", "show"]) == 0
    assert "shop-2: reader" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (["show"], 2, "error: no RDS instance was given"),
        (["show", "orders", "--to", "host=db1"], 2, "error: an endpoint or identifier cannot be used with --to"),
        (["show", "orders"], 10, "error: no AWS region is configured"),
        (
            ["show", "other", "--region", "eu-west-1"],
            10,
            'error: this AWS account has no instance or cluster "other" here',
        ),
        (
            ["show", "orders", "--region", "eu-west-1", "--profile", "none"],
            10,
            "error: could not obtain AWS credentials",
        ),
        (["show", "127.0.0.1"], 10, "error: 127.0.0.1 is not an endpoint of Amazon RDS"),
        (["show", "--to", "host=localhost port=5433"], 2, 'error: host "localhost" is not an endpoint of Amazon RDS'),
    ],
)
def test_what_cannot_be_shown_is_told(
    moto_rds: MotoRds, capfd: pytest.CaptureFixture[str], given: list[str], code: int, message: str
) -> None:
    """With an exit code of its own for AWS."""
    assert main(["rds", *given]) == code
    assert capfd.readouterr().err.startswith(message)
