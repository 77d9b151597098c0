"""A copy of an instance to replay on: the commands that make it, and what is checked before a replay."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from penstock.core.errors import AwsError
from penstock.rds.describe import describe_instance
from penstock.temp.copies import CopyFacts, compose_copy, judge_copy
from support.fake_aws import NOW, R6GD_2XLARGE, FakeAws, Raw, cluster, instance, member

if TYPE_CHECKING:
    from penstock.rds.values import RdsDescription

FACTS = CopyFacts(version="16.4", settings={"work_mem": "4MB", "jit": "on"})


def described(raw: Raw, *, orderable: list[str] | None = None) -> RdsDescription:
    """Return AWS's description of an instance."""
    aws = FakeAws(instances=[raw], orderable=orderable or [])
    return describe_instance(raw["DBInstanceIdentifier"], now=NOW, make_clients=aws.make_clients)


def test_the_sequence_is_a_snapshot_a_copy_with_local_storage_a_replay_and_their_removal() -> None:
    """Each a command for a shell, in the instance's own network, parameter group and security groups."""
    raw = instance("orders", VpcSecurityGroups=[{"VpcSecurityGroupId": "sg-1"}], MultiAZ=True)
    found = described(raw, orderable=["db.r6gd.2xlarge"])
    host = raw["Endpoint"]["Address"]
    lines = compose_copy(found, replay=["--top", "5"], to=f"host={host} dbname=shop")
    commands = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert [words[2] for words in commands] == [
        *("create-db-snapshot", "wait", "restore-db-instance-from-db-snapshot", "wait", "replay"),
        *("delete-db-instance", "delete-db-snapshot"),
    ]
    restore, replayed = commands[2], commands[4]
    assert restore[3:] == [
        *("--db-instance-identifier", "orders-penstock-replay", "--db-snapshot-identifier", "orders-penstock-replay"),
        *("--db-instance-class", "db.r6gd.2xlarge", "--no-multi-az", "--no-publicly-accessible"),
        *("--db-subnet-group-name", "private", "--vpc-security-group-ids", "sg-1"),
        *("--db-parameter-group-name", "default.postgres16", "--region", "eu-west-1"),
    ]
    copy = host.replace("orders.", "orders-penstock-replay.")
    assert replayed[3:] == [
        *("--to", f"host={host} dbname=shop", "--against", f"host={copy} dbname=shop", "--top", "5")
    ]


@pytest.mark.parametrize("to", ["host=db.corp.example dbname=shop", "host={} hostaddr=127.0.0.1", "dbname=shop"])
def test_instance_that_is_not_named_by_its_endpoint_is_refused(to: str) -> None:
    """The replay would compare the instance with itself."""
    raw = instance("orders")
    found = described(raw, orderable=["db.r6gd.2xlarge"])
    with pytest.raises(AwsError, match="must name the instance by its endpoint"):
        compose_copy(found, replay=[], to=to.format(raw["Endpoint"]["Address"]))


def test_an_instance_without_such_a_copy_is_refused() -> None:
    """AWS offers no class with local storage for it, or it is of a cluster."""
    with pytest.raises(AwsError, match=r"no class like db\.r6g\.2xlarge with local storage"):
        compose_copy(described(instance("orders")), replay=[], to="")
    aws = FakeAws(instances=[member("shop-1", "shop")], clusters=[cluster("shop", ["shop-1"])])
    of_cluster = describe_instance("shop-1", now=NOW, make_clients=aws.make_clients)
    with pytest.raises(AwsError, match="in no cluster"):
        compose_copy(of_cluster, replay=[], to="")


def test_what_makes_two_servers_comparable_is_said_step_by_step() -> None:
    """A copy, its version, its class, the blocks that RDS has not yet loaded, and settings that differ."""
    raw = instance(
        "copy",
        DBInstanceClass="db.r6gd.2xlarge",
        StorageOperationStatus="Initializing",
        StorageOperationPercentProgress=43,
    )
    aws = FakeAws(instances=[raw], types=[R6GD_2XLARGE])
    found = describe_instance("copy", now=NOW, make_clients=aws.make_clients)
    other = replace(FACTS, settings={"work_mem": "64MB", "jit": "on"})
    said = list(judge_copy(FACTS, other, is_copy=True, described=found))
    assert [(each.severity, each.code) for each in said] == [
        *(("ok", "copy"), ("ok", "class"), ("warning", "blocks"), ("note", "settings"))
    ]
    assert "43 % done" in said[2].claim
    assert said[3].claim == "settings differ: work_mem (4MB and 64MB)"


def test_what_makes_two_servers_differ_is_a_warning() -> None:
    """Another database, another version, a class without local storage; nothing is said of what is not known."""
    found = described(instance("copy"), orderable=["db.r6gd.2xlarge"])
    said = list(judge_copy(FACTS, replace(FACTS, version="17.2"), is_copy=False, described=found))
    assert [(each.severity, each.code) for each in said] == [
        *(("warning", "copy"), ("warning", "version"), ("warning", "class"))
    ]
    assert "--db-instance-class db.r6gd.2xlarge" in str(said[2].remedy)
    assert list(judge_copy(FACTS, FACTS, is_copy=None, described=None)) == []
