"""What stands in the way of an import from S3 is an error that says what was done so far; nothing of others changes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from penstock.core.errors import AwsError
from penstock.rds.s3_import.aws import RdsS3Import
from penstock.rds.s3_import.values import Call
from support.moto_rds import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from rds.s3_import.conftest import Place

pytestmark = pytest.mark.part("rest")

# The actions of IAM's policies that a run needs, by the call that is denied without them.
NEEDED = {
    "DescribeDBInstances": "rds:DescribeDBInstances",
    "ListTagsForResource": "rds:ListTagsForResource",
    "GetRole": "iam:GetRole",
    "GetPolicy": "iam:GetPolicy",
    "AddTagsToResource": "rds:AddTagsToResource",
    "CreatePolicy": "iam:CreatePolicy",
    "CreateRole": "iam:CreateRole",
    "AttachRolePolicy": "iam:AttachRolePolicy",
    "AddRoleToDBInstance": "iam:PassRole",
}
TO_UNDO = {
    "GetPolicyVersion": "iam:GetPolicyVersion",
    "ListPolicyVersions": "iam:ListPolicyVersions",
    "ListAttachedRolePolicies": "iam:ListAttachedRolePolicies",
    "ListRolePolicies": "iam:ListRolePolicies",
    "RemoveRoleFromDBInstance": "rds:RemoveRoleFromDBInstance",
    "DetachRolePolicy": "iam:DetachRolePolicy",
    "DeleteRole": "iam:DeleteRole",
    "DeletePolicy": "iam:DeletePolicy",
    "RemoveTagsFromResource": "rds:RemoveTagsFromResource",
}
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "s3:GetObject", "Resource": "*"}]}
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "rds.amazonaws.com"}}],
}


def _plan(place: Place, capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capfd.readouterr()
    assert place.run("--plan", "--json") == 0
    return dict(json.loads(capfd.readouterr().out))


def test_each_missing_permission_is_named(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """As IAM spells it. A later run does the rest, and so does a later --undo."""
    before = place.state()
    for operation, action in NEEDED.items():
        with Events(denied={operation: action}).watching() as events:
            assert place.run() == 10
        printed = capfd.readouterr().err
        assert action in printed
        assert ("Done so far: created role" in printed) == (operation == "AttachRolePolicy")
        if len(events.writes) <= 1:
            assert place.state() == before
    assert place.run() == 0
    for operation, action in TO_UNDO.items():
        with Events(denied={operation: action}).watching():
            assert place.run("--undo") == 10
        assert action in capfd.readouterr().err
    assert place.run("--undo") == 0
    assert place.state() == before


def test_what_only_describes_may_be_denied(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """The report says that the route and the bucket's key are not known."""
    denied = {
        "DescribeRouteTables": "ec2:DescribeRouteTables",
        "DescribeVpcEndpoints": "ec2:DescribeVpcEndpoints",
        "GetBucketEncryption": "s3:GetEncryptionConfiguration",
    }
    with Events(denied=denied).watching():
        assert place.run() == 0
    printed = capfd.readouterr().out
    assert all(action in printed for action in denied.values())
    assert printed.count("cannot tell") == 2
    assert place.run("--undo") == 0


def test_role_that_others_made_is_not_used(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """And no policy: one without the tag, or with that of another instance. --undo leaves both."""
    planned, iam = _plan(place, capfd), place.client("iam")
    role, policy = (planned[kind].rpartition("/")[2] for kind in ("role", "policy"))
    for tags in ([], [{"Key": "penstock:s3-import", "Value": "db-OTHER"}]):
        iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(POLICY), Tags=tags)
        before = place.state()
        assert place.run() == 10
        printed = capfd.readouterr().err
        assert f"role {role} exists, and is not penstock's" in printed
        assert "This run changed nothing" in printed
        assert place.run("--undo") == 0
        assert place.state() == before
        iam.delete_role(RoleName=role)
        arn = iam.create_policy(PolicyName=policy, PolicyDocument=json.dumps(POLICY), Tags=tags)["Policy"]["Arn"]
        before = place.state()
        assert place.run() == 10
        assert f"policy {policy} exists, and is not penstock's" in capfd.readouterr().err
        assert place.run("--undo") == 0
        assert place.state() == before
        iam.delete_policy(PolicyArn=arn)


def test_what_others_replaced_is_left_by_undo(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """A role of the same name in the place of penstock's: it is left, and reported."""
    planned, iam, rds = _plan(place, capfd), place.client("iam"), place.client("rds")
    assert place.run() == 0
    role = planned["role"].rpartition("/")[2]
    rds.remove_role_from_db_instance(DBInstanceIdentifier=place.owner, RoleArn=planned["role"], FeatureName="s3Import")
    iam.detach_role_policy(RoleName=role, PolicyArn=planned["policy"])
    iam.delete_role(RoleName=role)
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=json.dumps(TRUST))
    capfd.readouterr()
    assert place.run("--undo") == 0
    assert f"role {role} is left" in capfd.readouterr().out
    assert role in place.state()["roles"]
    iam.delete_role(RoleName=role)


def test_changed_trust_is_an_error(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """Others may use the role since; --undo removes it."""
    before = place.state()
    assert place.run() == 0
    (role,) = set(place.state()["roles"]) - set(before["roles"])
    place.client("iam").update_assume_role_policy(RoleName=role, PolicyDocument=json.dumps(TRUST))
    assert place.run() == 10
    printed = capfd.readouterr().err
    assert "has changed" in printed
    assert "an earlier one made policy" in printed
    assert place.run("--undo") == 0
    assert place.state() == before


def test_policy_that_the_user_attached_stops_undo(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """Before anything is removed."""
    assert place.run() == 0
    prepared, iam = place.state(), place.client("iam")
    arn = iam.create_policy(PolicyName="theirs", PolicyDocument=json.dumps(POLICY))["Policy"]["Arn"]
    (role,) = [name for name in prepared["roles"] if name.startswith("penstock-")]
    iam.attach_role_policy(RoleName=role, PolicyArn=arn)
    with Events().watching() as events:
        assert place.run("--undo") == 10
    assert events.writes == []
    assert arn in capfd.readouterr().err
    iam.detach_role_policy(RoleName=role, PolicyArn=arn)
    iam.delete_policy(PolicyArn=arn)
    iam.put_role_policy(RoleName=role, PolicyName="their-own", PolicyDocument=json.dumps(POLICY))
    with Events().watching() as events:
        assert place.run("--undo") == 10
    assert events.writes == []
    assert "their-own" in capfd.readouterr().err
    iam.delete_role_policy(RoleName=role, PolicyName="their-own")
    assert place.run("--undo") == 0


def test_changed_policy_is_undone_with_all_its_versions(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """IAM keeps the former document as a version, and deletes no policy that has several."""
    before = place.state()
    assert place.run() == 0
    (arn,) = set(place.state()["policies"].values()) - set(before["policies"].values())
    place.client("iam").create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(POLICY), SetAsDefault=True)
    assert place.run() == 10
    assert "has changed" in capfd.readouterr().err
    assert place.run("--undo") == 0
    assert "deleted version v1 of policy" in capfd.readouterr().err
    assert place.state() == before


@pytest.mark.parametrize("kind", ["instance", "cluster"])
def test_server_that_is_not_available_is_refused(
    make_place: Callable[..., Place], kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before anything is made; one that is prepared already needs nothing."""
    place = make_place(kind)
    before, rds = place.state(), place.client("rds")
    name = {"DBInstanceIdentifier" if kind == "instance" else "DBClusterIdentifier": place.owner}
    getattr(rds, f"stop_db_{kind}")(**name)
    assert place.run() == 10
    printed = capfd.readouterr().err
    assert f"{kind} {place.owner} is stopped, not available" in printed
    assert "This run changed nothing; nothing was made" in printed
    assert place.state() == before
    getattr(rds, f"start_db_{kind}")(**name)
    assert place.run() == 0
    getattr(rds, f"stop_db_{kind}")(**name)
    assert place.run() == 0
    assert place.run("--undo") == 10
    getattr(rds, f"start_db_{kind}")(**name)
    assert place.run("--undo") == 0
    assert place.state() == before


def test_server_with_another_role_is_refused(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """RDS allows one role for the feature."""
    iam = place.client("iam")
    arn = iam.create_role(RoleName="theirs", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    place.client("rds").add_role_to_db_instance(DBInstanceIdentifier=place.owner, RoleArn=arn, FeatureName="s3Import")
    before = place.state()
    assert place.run() == 10
    assert arn in capfd.readouterr().err
    assert place.state() == before
    iam.delete_role(RoleName="theirs")


def test_server_without_the_extension_is_refused(make_place: Callable[..., Place]) -> None:
    """Before anything is made."""
    place = make_place(has_extension=False)
    before = place.state()
    assert place.run() == 6
    assert place.state() == before


def test_failed_extension_says_what_was_done(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """All of AWS; the role may not create it. Nothing is lost by that."""
    before = place.state()
    with psycopg.connect(place.database, autocommit=True) as admin:
        admin.execute("CREATE ROLE penstock_plain")
        try:
            assert place.run("--role", "penstock_plain") == 6
            printed = capfd.readouterr().err
            assert "Done so far: tagged instance" in printed
            assert f"added the role to instance {place.owner}" in printed
            assert place.run("--undo") == 0
        finally:
            admin.execute("DROP ROLE penstock_plain")
    assert place.state() == before


def test_used_extension_is_not_dropped(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """Something depends on it: --undo stops before it removes anything, and resumes when that is gone."""
    before = place.state()
    assert place.run() == 0
    prepared = place.state()
    with psycopg.connect(place.database, autocommit=True) as admin:
        admin.execute("CREATE VIEW theirs AS SELECT aws_s3.probe()")
        assert place.run("--undo") != 0
        assert "This run changed nothing" in capfd.readouterr().err
        assert place.state() == prepared
        admin.execute("DROP VIEW theirs")
    assert place.run("--undo") == 0
    assert place.state() == before


def test_missing_bucket_is_an_error(place: Place) -> None:
    """Nothing is made for it."""
    before = place.state()
    assert place.run("--bucket", "no-such-bucket") == 10
    assert place.state() == before


def test_other_hosts_are_refused(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    """A server that is not of RDS."""
    assert place.run("--to", "host=db1.example.org") == 10
    assert place.run("--to", "host=localhost") == 2
    assert "is not an endpoint of Amazon RDS" in capfd.readouterr().err


def test_new_role_is_tried_again_until_rds_knows_it(place: Place) -> None:
    """RDS calls its ARN invalid while IAM's changes spread; for a minute at most."""
    iam, slept = place.client("iam"), list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            iam.create_role(RoleName="late", AssumeRolePolicyDocument=json.dumps(TRUST))

    arn = "arn:aws:iam::123456789012:role/late"
    given = {"DBInstanceIdentifier": place.owner, "RoleArn": arn, "FeatureName": "s3Import"}
    call = Call(service="rds", operation="add_role_to_db_instance", parameters=given, done="")
    host = place.describe()["Endpoint"]["Address"]
    aws = RdsS3Import(host, sleep=sleep)
    aws.call(call)
    aws.close()
    assert len(slept) == 3
    iam.delete_role(RoleName="late")
    times = iter(range(0, 1000, 30))
    aws = RdsS3Import(host, sleep=slept.append, clock=lambda: float(next(times)))
    with pytest.raises(AwsError):
        aws.call(call)
    aws.close()


@pytest.mark.parametrize("kind", ["instance", "cluster"])
def test_role_that_is_removed_already_is_no_error(make_place: Callable[..., Place], kind: str) -> None:
    """RDS lists it for a while: a run that was killed meanwhile has removed it."""
    place = make_place(kind)
    name = {"DBInstanceIdentifier" if kind == "instance" else "DBClusterIdentifier": place.owner}
    given = {**name, "RoleArn": "arn:aws:iam::123456789012:role/gone", "FeatureName": "s3Import"}
    owner = place.describe()["Endpoint"]
    aws = RdsS3Import(owner if kind == "cluster" else owner["Address"])
    aws.call(Call(service="rds", operation=f"remove_role_from_db_{kind}", parameters=given, done=""))
    assert aws.read_owner().roles == ()
    aws.close()
