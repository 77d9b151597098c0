"""The same over HTTP, of moto's server: credentials, region and endpoints as the environment and files have them.

moto knows no pending maintenance (the call fails), gives every instance one DbiResourceId, and says in-sync of every
parameter group; tests/rds/test_rds_describe.py has what that leaves out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from penstock.cli.main import main
from penstock.core.errors import AwsError
from penstock.rds.clients import AwsClients
from penstock.rds.describe import describe_instance

if TYPE_CHECKING:
    from pathlib import Path

    from rds.conftest import MotoRds

pytestmark = pytest.mark.part("rest")


@pytest.mark.part("main")
def test_instance_is_described(moto_rds: MotoRds) -> None:
    """RDS, EC2 and CloudWatch each say their part."""
    found = describe_instance(moto_rds.instance, now=datetime.now(UTC))
    assert found.instance is not None
    assert found.instance.storage is not None
    assert found.instance.instance_class.vcpu_count == 8
    assert found.instance.storage.free_bytes == 312 * 1024**3
    assert found.instance.optimized_reads.is_on
    assert found.instance.is_iam_auth_on
    assert [group.users for group in found.instance.parameter_groups] == [("orders", "orders-copy")]
    assert [gap.call for gap in found.gaps] == ["rds:DescribePendingMaintenanceActions"]


def test_cluster_is_described_behind_both_endpoints(moto_rds: MotoRds) -> None:
    """With the members in their roles."""
    found = describe_instance(moto_rds.reader, now=datetime.now(UTC))
    assert found.cluster is not None
    assert found.may_reach == ("shop-2",)
    assert [member.is_writer for member in found.cluster.members] == [True, False]
    assert describe_instance(moto_rds.writer, now=datetime.now(UTC)).may_reach == ("shop-1",)


def test_identifier_needs_a_region(moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint has it; otherwise it is given or configured."""
    with pytest.raises(AwsError, match="no AWS region is configured"):
        describe_instance("orders", now=datetime.now(UTC))
    assert describe_instance("orders", now=datetime.now(UTC), region="eu-west-1").instance is not None
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert describe_instance("orders", now=datetime.now(UTC)).region == "eu-west-1"


def test_profile_gives_credentials_and_region(
    moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for AWS's own command line."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "config").write_text("[profile work]\nregion = eu-west-1\n")
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKIAWORK\naws_secret_access_key = s\n")
    assert describe_instance("orders", now=datetime.now(UTC), profile="work").instance is not None
    with pytest.raises(AwsError):
        describe_instance("orders", now=datetime.now(UTC), profile="play")
    with pytest.raises(AwsError, match="no AWS credentials were found"):
        describe_instance(moto_rds.instance, now=datetime.now(UTC))


def test_endpoint_of_one_service_can_be_overridden(moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_ENDPOINT_URL_RDS overrides AWS_ENDPOINT_URL. An endpoint that does not answer is reported."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_RDS", moto_rds.url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    found = describe_instance(
        moto_rds.instance,
        now=datetime.now(UTC),
        make_clients=lambda **given: AwsClients(**given, timeout_s=5),
    )
    assert {gap.call for gap in found.gaps} == {
        "rds:DescribePendingMaintenanceActions",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeSecurityGroups",
        "cloudwatch:GetMetricStatistics",
    }
    assert found.instance is not None
    assert found.instance.instance_class.vcpu_count == 8


def test_a_replay_on_a_copy_is_planned_of_the_instance_behind_the_endpoint(
    moto_rds: MotoRds, capfd: pytest.CaptureFixture[str]
) -> None:
    """It has local storage already; of a cluster there is no such copy."""
    for host, words in (
        (moto_rds.instance, "orders has temporary files on 474 GB"),
        (moto_rds.writer, "in no cluster"),
    ):
        assert main(["temp", "replay", "--top", "3", "--plan", "--to", f"host={host} dbname=shop"]) == 10
        assert words in capfd.readouterr().err
