"""What AWS says into findings: groups, changes, maintenance, IAM, storage, and what was denied."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.errors import AwsError
from penstock.rds.describe import describe_instance
from penstock.rds.findings import describe_silence, judge_rds
from penstock.rds.view import describe_rds_facts
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, cluster, instance, member

if TYPE_CHECKING:
    from penstock.core.values.diagnosis import Diagnosis
    from penstock.rds.values import RdsDescription

GIB = 2.0**30


def describe(aws: FakeAws, wanted: str = "orders") -> RdsDescription:
    return describe_instance(wanted, now=NOW, make_clients=aws.make_clients)


def judged(*, uses_iam: bool = False, aws: FakeAws | None = None, **more: Any) -> list[Diagnosis]:
    """Return the findings of one instance with room to spare."""
    asked = aws or FakeAws(instances=[instance("orders", **more)], metrics={"orders FreeStorageSpace": [312 * GIB]})
    return list(judge_rds(describe(asked), uses_iam=uses_iam))


def only(findings: list[Diagnosis], word: str) -> Diagnosis:
    (found,) = [finding for finding in findings if word in finding.claim]
    return found


def test_group_that_awaits_a_reboot_is_a_warning_with_the_command() -> None:
    """Its settings are not what the group says."""
    group = {"DBParameterGroupName": "loads", "ParameterApplyStatus": "pending-reboot"}
    found = only(judged(DBParameterGroups=[group]), "wait for a reboot")
    assert found.severity == "warning"
    assert found.remedy == "aws rds reboot-db-instance --db-instance-identifier orders --region eu-west-1"


def test_group_of_a_cluster_names_the_instance_to_reboot() -> None:
    """Each member applies it for itself."""
    raw = cluster("shop", ["shop-1"], DBClusterParameterGroup="own")
    for one in raw["DBClusterMembers"]:
        one["DBClusterParameterGroupStatus"] = "pending-reboot"
    aws = FakeAws(instances=[member("shop-1", "shop")], clusters=[raw])
    findings = list(judge_rds(describe(aws, "shop"), uses_iam=False))
    found = only(findings, "cluster parameter group own has changes")
    assert found.remedy == "aws rds reboot-db-instance --db-instance-identifier shop-1 --region eu-west-1"


def test_shared_group_names_the_others() -> None:
    """Whoever changes it changes them."""
    group = [{"DBParameterGroupName": "loads", "ParameterApplyStatus": "in-sync"}]
    aws = FakeAws(instances=[instance(name, DBParameterGroups=group) for name in ("orders", "a", "b")])
    assert only(judged(aws=aws), "shared by 3").claim.endswith("changes a, b")


def test_default_group_cannot_be_changed() -> None:
    """It is everybody's, and so not called shared."""
    findings = judged()
    assert only(findings, "AWS's own").severity == "note"
    assert not [finding for finding in findings if "shared" in finding.claim]


def test_pending_changes_and_maintenance_are_told_with_their_time() -> None:
    """Of the instance."""
    raw = instance("orders", PendingModifiedValues={"AllocatedStorage": 500}, DBInstanceStatus="modifying")
    action = {"Action": "system-update", "CurrentApplyDate": NOW + timedelta(days=3)}
    findings = judged(aws=FakeAws(instances=[raw], maintenance={raw["DBInstanceArn"]: [action]}))
    assert "AllocatedStorage 500" in only(findings, "changes of orders").claim
    assert only(findings, "system-update").claim.endswith("scheduled for Tue 2026-11-24 12:00 UTC")
    assert only(findings, "modifying").severity == "warning"


@pytest.mark.parametrize(("is_on", "severity"), [(True, "ok"), (False, "warning")])
def test_iam_authentication_is_told_where_it_is_used(is_on: bool, severity: str) -> None:
    """With the command that turns it on."""
    findings = judged(uses_iam=True, IAMDatabaseAuthenticationEnabled=is_on)
    found = only(findings, "IAM authentication")
    assert found.severity == severity
    assert (found.remedy is None) is is_on
    assert not [one for one in judged(IAMDatabaseAuthenticationEnabled=is_on) if "IAM authentication" in one.claim]


def test_storage_that_is_nearly_full_is_a_warning_with_the_command() -> None:
    """A tenth is RDS's own limit."""
    aws = FakeAws(instances=[instance("orders")], metrics={"orders FreeStorageSpace": [39 * GIB]})
    found = only(judged(aws=aws), "of storage are free")
    assert found.remedy is not None
    assert "--allocated-storage 480 --apply-immediately" in found.remedy
    assert not [one for one in judged() if "of storage are free" in one.claim]


def test_denied_call_is_a_note_with_the_permission() -> None:
    """A gap of another kind needs no permission."""
    aws = FakeAws(instances=[instance("orders")], denied={"DescribeInstanceTypes": "not for you"})
    findings = judged(aws=aws)
    assert (
        only(findings, "not for you").remedy == "Allow ec2:DescribeInstanceTypes in an IAM policy: docs/rds.md has one."
    )
    assert only(findings, "no recent value").remedy is None


def test_several_instances_behind_an_endpoint_are_named() -> None:
    """What is shown is one of them."""
    names = ["shop-1", "shop-2", "shop-3"]
    aws = FakeAws(instances=[member(name, "shop") for name in names], clusters=[cluster("shop", names)])
    found = describe(aws, f"shop.cluster-ro-{ACCOUNT}.{REGION}.rds.amazonaws.com")
    assert only(list(judge_rds(found, uses_iam=False)), "leads to one of shop-2, shop-3").severity == "note"
    facts = dict(describe_rds_facts(found))
    assert facts["AWS"] == "instance shop-2 of Aurora cluster shop, available in eu-west-1"
    assert facts["storage"] == "Aurora's, grows automatically"


def test_silence_is_a_note() -> None:
    """With AWS's words and the hint."""
    found = describe_silence(AwsError("no AWS credentials were found", detail="None at all.", hint="Have some."))
    assert (found.severity, found.claim) == ("note", "no AWS credentials were found. None at all")
    assert found.remedy == "Have some."
