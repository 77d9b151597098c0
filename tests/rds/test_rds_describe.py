"""How AWS's answers are used: servers are found, identified and described, and denied calls are reported.

AWS is the fake of support/fake_aws.py; tests/rds/test_rds_moto.py has the same asked of moto's server over HTTP.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.aws.calls import Gap
from penstock.core.errors import AwsError, UsageError
from penstock.rds.describe import describe_instance
from penstock.rds.values import AssociatedRole, OptimizedReads, PendingChange
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, cluster, instance, member, resource_id

if TYPE_CHECKING:
    from penstock.rds.values import RdsDescription, RdsInstance


def describe(aws: FakeAws, wanted: str, **more: Any) -> RdsDescription:
    return describe_instance(wanted, now=NOW, make_clients=aws.make_clients, resolve=lambda _: [], **more)


def described_instance(aws: FakeAws, wanted: str = "orders") -> RdsInstance:
    found = describe(aws, wanted).instance
    assert found is not None
    return found


def host(name: str, prefix: str = "") -> str:
    return f"{name}.{prefix}{ACCOUNT}.{REGION}.rds.amazonaws.com"


def shop(**more: Any) -> FakeAws:
    """Return an Aurora cluster with a writer and two readers."""
    names = ["shop-1", "shop-2", "shop-3"]
    return FakeAws(instances=[member(name, "shop") for name in names], clusters=[cluster("shop", names, **more)])


def test_instance_is_found_by_its_endpoint() -> None:
    """The name and the region are in the host name, and its case does not matter."""
    found = describe(FakeAws(instances=[instance("orders")]), host("orders").upper())
    assert found.instance is not None
    assert (found.instance.identifier, found.region, found.found_by) == ("orders", REGION, "instance")
    assert found.gaps == (Gap(call="cloudwatch:GetMetricStatistics", reason="no recent value of FreeStorageSpace"),)


@pytest.mark.part("rest")
def test_china_names_its_region_behind_rds() -> None:
    """Both orders are in use there."""
    for address in (
        f"orders.{ACCOUNT}.rds.cn-north-1.amazonaws.com.cn",
        f"orders.{ACCOUNT}.cn-north-1.rds.amazonaws.com.cn",
    ):
        aws = FakeAws(instances=[instance("orders", Endpoint={"Address": address, "Port": 5432})])
        assert describe(aws, address).region == "cn-north-1"


def test_instance_of_another_account_is_not_taken_for_it() -> None:
    """Names are unique within an account. The host name distinguishes accounts."""
    with pytest.raises(AwsError, match=r"is not the one at orders\.other\.eu-west-1") as caught:
        describe(FakeAws(instances=[instance("orders")]), f"orders.other.{REGION}.rds.amazonaws.com")
    assert caught.value.detail == f"Its endpoint is {host('orders')}."


def test_alias_is_followed_to_the_endpoint() -> None:
    """A host name of one's own leads to the instance by DNS; the first name of RDS on the way counts."""
    names = ["db.example.com", host("shop", "cluster-"), host("shop-1"), "ec2-3-4-5-6.compute.amazonaws.com"]
    found = describe_instance(
        "db.example.com", now=NOW, make_clients=shop().make_clients, resolve={"db.example.com": names}.__getitem__
    )
    assert found.found_by == "writer"


def test_host_that_is_not_rds_is_refused() -> None:
    """Nothing is asked of AWS."""
    aws = FakeAws()
    with pytest.raises(AwsError, match=r"db\.example\.com is not an endpoint of Amazon RDS"):
        describe(aws, "db.example.com")
    assert aws.asked == []


@pytest.mark.parametrize("prefix", ["proxy-", "global-", "shardgrp-"])
def test_endpoint_that_names_no_server_is_refused(prefix: str) -> None:
    """Behind a proxy, a global endpoint or a shard group stands something else."""
    with pytest.raises(AwsError, match=f"^orders.{prefix}"):
        describe(FakeAws(), host("orders", prefix))


def test_region_that_contradicts_the_endpoint_is_refused() -> None:
    """One of the two is a mistake."""
    with pytest.raises(UsageError, match="is in region eu-west-1, not in us-east-1"):
        describe(FakeAws(), host("orders"), region="us-east-1")


def test_identifier_finds_an_instance_and_else_a_cluster() -> None:
    """As AWS's command line takes either."""
    assert describe(shop(), "shop-2").may_reach == ("shop-2",)
    assert describe(shop(), "shop").may_reach == ("shop-1",)
    with pytest.raises(AwsError, match='no instance or cluster "other" here'):
        describe(shop(), "other")


def test_resource_ids_find_what_they_name() -> None:
    """They stay when an instance is renamed."""
    aws = shop()
    assert describe(aws, resource_id("db", "shop-2")).may_reach == ("shop-2",)
    assert describe(aws, resource_id("cluster", "shop")).may_reach == ("shop-1",)


def test_other_engines_are_refused() -> None:
    """What follows would be wrong for them."""
    with pytest.raises(AwsError, match="is not PostgreSQL"):
        describe(FakeAws(instances=[instance("orders", Engine="mysql")]), "orders")


def test_endpoints_of_a_cluster_lead_to_writer_or_readers() -> None:
    """Which reader it will be is not known, so all are named."""
    assert describe(shop(), host("shop", "cluster-")).may_reach == ("shop-1",)
    assert describe(shop(), host("shop", "cluster-ro-")).may_reach == ("shop-2", "shop-3")


def test_reader_endpoint_without_readers_leads_to_the_writer() -> None:
    """So Aurora has it."""
    aws = FakeAws(instances=[member("shop-1", "shop")], clusters=[cluster("shop", ["shop-1"])])
    assert describe(aws, host("shop", "cluster-ro-")).may_reach == ("shop-1",)


@pytest.mark.parametrize(
    ("kind", "static", "excluded", "reached"),
    [
        ("ANY", [], [], ("shop-1", "shop-2", "shop-3")),
        ("READER", [], ["shop-2"], ("shop-3",)),
        ("ANY", ["shop-3", "shop-1"], [], ("shop-1", "shop-3")),
    ],
)
def test_custom_endpoint_leads_to_its_members(
    kind: str, static: list[str], excluded: list[str], reached: tuple[str, ...]
) -> None:
    """The endpoint's name does not contain the cluster's."""
    aws = shop()
    aws.custom_endpoints = [
        {
            "DBClusterEndpointIdentifier": "reports",
            "DBClusterIdentifier": "shop",
            "Endpoint": host("reports", "cluster-custom-"),
            "CustomEndpointType": kind,
            "StaticMembers": static,
            "ExcludedMembers": excluded,
        }
    ]
    found = describe(aws, host("reports", "cluster-custom-"))
    assert (found.found_by, found.may_reach) == ("custom", reached)


def test_hardware_and_storage_are_read() -> None:
    """From EC2 what the class can do, from CloudWatch what is free, from RDS the rest."""
    aws = FakeAws(
        instances=[instance("orders", DBInstanceClass="db.r6gd.2xlarge", MaxAllocatedStorage=1000)],
        metrics={
            "orders FreeStorageSpace": [1.0, 2.0, 3.5],
            "orders FreeLocalStorage": [7.0],
            "orders WriteIOPSLocalStorage": [3, 5],
        },
    )
    found = described_instance(aws)
    assert found.instance_class.ebs is not None
    assert (found.instance_class.vcpu_count, found.instance_class.memory_mib) == (8, 65536)
    assert (found.instance_class.ebs.baseline_iops, found.instance_class.ebs.maximum_mb_per_s) == (12000, 593.75)
    assert found.storage is not None
    assert (found.storage.size_gib, found.storage.ceiling_gib, found.storage.free_bytes) == (400, 1000, 3)
    assert found.local_storage is not None
    assert found.local_storage.values == {"WriteIOPSLocalStorage": 5.0, "FreeLocalStorage": 7.0}
    assert found.local_storage.free_bytes == 7
    asked = [given for operation, given in aws.asked if operation == "GetMetricStatistics"]
    assert all(given["EndTime"] == NOW and given["StartTime"] >= NOW - timedelta(hours=1) for given in asked)


def test_autoscaling_that_is_used_up_counts_as_none() -> None:
    """Storage that has reached the ceiling grows no more."""
    found = described_instance(FakeAws(instances=[instance("orders", MaxAllocatedStorage=400)]))
    assert found.storage is not None
    assert found.storage.ceiling_gib is None


def test_aurora_has_no_volume_of_its_own() -> None:
    """So CloudWatch is not asked what is free of it."""
    aws = shop()
    found = describe(aws, "shop")
    assert found.instance is not None
    assert found.instance.storage is None
    assert found.gaps == ()


def test_parameter_group_names_who_shares_it() -> None:
    """A change of it changes them all; pages of instances are turned."""
    groups = [{"DBParameterGroupName": "loads", "ParameterApplyStatus": "pending-reboot"}]
    aws = FakeAws(
        instances=[
            instance("b", DBParameterGroups=groups),
            instance("other"),
            instance("orders", DBParameterGroups=groups),
            instance("a", DBParameterGroups=groups),
        ],
        page_size=1,
    )
    (group,) = described_instance(aws).parameter_groups
    assert (group.name, group.apply_state, group.is_default) == ("loads", "pending-reboot", False)
    assert group.users == ("orders", "a", "b")


def test_default_parameter_group_is_known_as_one() -> None:
    """Its parameters cannot be changed."""
    (group,) = described_instance(FakeAws(instances=[instance("orders")])).parameter_groups
    assert group.is_default


def test_cluster_parameter_group_is_behind_where_a_member_is() -> None:
    """Each member applies it for itself."""
    aws = shop(DBClusterParameterGroup="loads")
    aws.clusters[0]["DBClusterMembers"][1]["DBClusterParameterGroupStatus"] = "pending-reboot"
    aws.clusters.append(cluster("till", [], DBClusterParameterGroup="loads"))
    found = describe(aws, "shop").cluster
    assert found is not None
    (group,) = found.parameter_groups
    assert (group.apply_state, group.users) == ("pending-reboot", ("shop", "till"))


def test_pending_changes_hide_the_password() -> None:
    """AWS masks it; its stand-in is not shown either."""
    pending = {"AllocatedStorage": 500, "MasterUserPassword": "****", "DBInstanceClass": "db.r6g.4xlarge"}
    found = described_instance(FakeAws(instances=[instance("orders", PendingModifiedValues=pending)]))
    assert found.pending_changes == (
        PendingChange(name="AllocatedStorage", value="500"),
        PendingChange(name="MasterUserPassword", value="(hidden)"),
        PendingChange(name="DBInstanceClass", value="db.r6g.4xlarge"),
    )


def test_pending_maintenance_is_read_for_instance_and_cluster() -> None:
    """Each has its own."""
    aws = shop()
    at = NOW + timedelta(days=3)
    aws.maintenance = {
        aws.instances[0]["DBInstanceArn"]: [{"Action": "system-update", "CurrentApplyDate": at}],
        aws.clusters[0]["DBClusterArn"]: [{"Action": "db-upgrade", "OptInStatus": "next-maintenance"}],
    }
    found = describe(aws, "shop")
    assert found.instance is not None
    assert found.cluster is not None
    assert found.instance.pending_maintenance is not None
    assert found.cluster.pending_maintenance is not None
    assert [(one.action, one.applies_at) for one in found.instance.pending_maintenance] == [("system-update", at)]
    assert [(one.action, one.opt_in_status) for one in found.cluster.pending_maintenance] == [
        ("db-upgrade", "next-maintenance")
    ]


def test_roles_are_read() -> None:
    """s3Import is the one that loads from S3 need."""
    role = {"RoleArn": "arn:aws:iam::111122223333:role/s3", "FeatureName": "s3Import", "Status": "PENDING"}
    found = described_instance(FakeAws(instances=[instance("orders", AssociatedRoles=[role])]))
    assert found.roles == (
        AssociatedRole(arn="arn:aws:iam::111122223333:role/s3", feature="s3Import", status="PENDING"),
    )


def test_no_backups_mean_no_backup_window() -> None:
    """RDS names one all the same."""
    found = describe(FakeAws(instances=[instance("orders", BackupRetentionPeriod=0)]), "orders")
    assert [window.kind for window in found.windows] == ["maintenance"]


def test_windows_of_an_instance_are_maintenance_and_backup() -> None:
    """Both are to be kept clear of; one may wrap around the week."""
    found = describe(
        FakeAws(instances=[instance("orders", PreferredMaintenanceWindow="sun:23:45-mon:00:15")]), "orders"
    )
    assert list(map(str, found.windows)) == ["sun:23:45-mon:00:15", "03:00-03:30"]


def test_windows_of_aurora_are_the_clusters_and_the_instances() -> None:
    """Its backups are continuous, so that their window does not count."""
    assert [(window.owner, str(window)) for window in describe(shop(), "shop").windows] == [
        ("cluster", "sun:23:45-mon:00:15"),
        ("instance", "tue:04:00-tue:04:30"),
    ]


@pytest.mark.part("rest")
def test_windows_of_a_multi_az_cluster_are_its_own() -> None:
    """Those of its instances cannot be moved by themselves."""
    aws = FakeAws(
        instances=[instance("till-1", DBClusterIdentifier="till")],
        clusters=[cluster("till", ["till-1"], Engine="postgres", DBClusterInstanceClass="db.r6gd.2xlarge")],
    )
    found = describe(aws, "till")
    assert [(window.owner, window.kind) for window in found.windows] == [
        ("cluster", "maintenance"),
        ("cluster", "backup"),
    ]
    assert found.instance is not None
    assert found.instance.storage is not None


def test_window_that_cannot_be_read_is_a_gap() -> None:
    """And not the end of everything else."""
    found = describe(FakeAws(instances=[instance("orders", PreferredMaintenanceWindow="sunday")]), "orders")
    assert found.instance is not None
    assert found.instance.maintenance_window is None
    assert Gap(call="rds:DescribeDBInstances", reason='"sunday" is no maintenance window') in found.gaps


def test_denied_calls_leave_gaps_and_the_rest_stands() -> None:
    """If EC2 may not be asked, the number of vCPUs follows from the name of the class."""
    reason = "User: arn:aws:iam::111122223333:user/ann is not authorized"
    aws = FakeAws(
        instances=[instance("orders")],
        denied=dict.fromkeys(
            ("DescribeInstanceTypes", "DescribePendingMaintenanceActions", "GetMetricStatistics"), reason
        ),
    )
    found = describe(aws, "orders")
    assert found.instance is not None
    assert found.instance.instance_class.vcpu_count == 8
    assert found.instance.instance_class.ebs is None
    assert found.instance.pending_maintenance is None
    assert found.instance.optimized_reads.is_on is None
    assert {gap.call for gap in found.gaps} == {
        "ec2:DescribeInstanceTypes",
        "rds:DescribePendingMaintenanceActions",
        "cloudwatch:GetMetricStatistics",
    }
    assert {gap.reason for gap in found.gaps} == {f"AccessDenied: {reason}"}


def test_denied_list_leaves_open_who_shares_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A right to describe one instance does not give that to list them all."""
    aws = FakeAws(instances=[instance("orders")])
    allowed = aws._describe_db_instances

    def answer(parameters: dict[str, Any]) -> dict[str, Any]:
        if "DBInstanceIdentifier" not in parameters:
            aws.denied["DescribeDBInstances"] = "no"
            return aws.answer("DescribeDBInstances", parameters)
        return allowed(parameters)

    monkeypatch.setattr(aws, "_describe_db_instances", answer)
    found = describe(aws, "orders")
    assert found.instance is not None
    assert [group.users for group in found.instance.parameter_groups] == [None]
    assert Gap(call="rds:DescribeDBInstances", reason="AccessDenied: no", is_denied=True) in found.gaps


def test_cluster_is_described_where_its_instances_may_not_be() -> None:
    """And an instance where its cluster may not be."""
    aws = shop()
    aws.denied = {"DescribeDBInstances": "no"}
    found = describe(aws, host("shop", "cluster-"))
    assert found.cluster is not None
    assert (found.instance, found.may_reach) == (None, ("shop-1",))
    aws.denied = {"DescribeDBClusters": "no"}
    found = describe(aws, host("shop-1"))
    assert found.instance is not None
    assert found.cluster is None
    assert found.gaps == (Gap(call="rds:DescribeDBClusters", reason="AccessDenied: no", is_denied=True),)


def test_nothing_may_be_asked() -> None:
    """Then there is nothing to show, and the message names the right that is missing."""
    aws = FakeAws(denied={"DescribeDBInstances": "User: ann is not authorized"})
    with pytest.raises(AwsError) as caught:
        describe(aws, "orders")
    assert caught.value.detail == "AccessDenied: User: ann is not authorized."


def test_only_the_first_line_of_a_refusal_is_kept() -> None:
    """AWS answers a wrong signature with what was to be signed, a session's token in it."""
    aws = FakeAws(instances=[instance("orders")])
    aws.denied = {"DescribeInstanceTypes": "wrong signature.\n\nThe Canonical String was\nx-amz-security-token:TOKEN"}
    assert "TOKEN" not in str(describe(aws, "orders").gaps)


@pytest.mark.parametrize(
    ("engine", "version", "class_name", "storage", "is_on"),
    [
        ("postgres", "16.4", "db.r6gd.2xlarge", "gp3", True),
        ("postgres", "14.6", "db.r6gd.2xlarge", "gp3", False),
        ("postgres", "14.7", "db.r6gd.2xlarge", "gp3", True),
        ("postgres", "12.22", "db.r6gd.2xlarge", "gp3", False),
        ("postgres", "16.4", "db.r6g.2xlarge", "gp3", False),
        ("aurora-postgresql", "14.8", "db.r6gd.2xlarge", "aurora", False),
        ("aurora-postgresql", "16.1", "db.r6gd.2xlarge", "aurora", True),
    ],
)
def test_optimized_reads_need_local_storage_and_a_version(
    engine: str, version: str, class_name: str, storage: str, is_on: bool
) -> None:
    """Both are needed; the versions are those of AWS's user guides."""
    raw = instance("orders", Engine=engine, EngineVersion=version, DBInstanceClass=class_name, StorageType=storage)
    assert described_instance(FakeAws(instances=[raw])).optimized_reads.is_on is is_on


@pytest.mark.part("rest")
def test_tiered_cache_needs_io_optimized_storage() -> None:
    """Which is the cluster's choice."""
    aws = shop(StorageType="aurora-iopt1")
    aws.instances[0]["DBInstanceClass"] = "db.r6gd.2xlarge"
    assert described_instance(aws, "shop").optimized_reads == OptimizedReads(
        is_on=True, reason="tiered cache and temporary files on 474 GB of local storage"
    )


def test_serverless_has_no_fixed_cpus() -> None:
    """EC2 does not know the class, and is not asked."""
    aws = shop(ServerlessV2ScalingConfiguration={"MinCapacity": 0.5, "MaxCapacity": 16.0})
    aws.instances[0]["DBInstanceClass"] = "db.serverless"
    found = describe(aws, "shop")
    assert found.instance is not None
    assert found.cluster is not None
    assert found.instance.instance_class.vcpu_count is None
    assert found.cluster.capacity_range == (0.5, 16.0)
    assert found.gaps == ()
