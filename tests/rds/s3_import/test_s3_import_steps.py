"""Names, documents and routes of an import from S3, for what moto has none of: partitions, long names, NAT gateways."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from penstock.changes.store_tags import change_tags, hold_tags, read_changes, read_holds
from penstock.changes.values import SERVER, Hold
from penstock.core.errors import AwsError
from penstock.rds.s3_import.aws import judge_route
from penstock.rds.s3_import.steps import (
    compose_policy,
    compose_trust,
    find_changes,
    name_policy,
    name_role,
    plan_steps,
    plan_undo,
    write_document,
)
from penstock.rds.s3_import.values import (
    BucketKey,
    ExtensionFacts,
    Found,
    Owner,
    S3Prefix,
    SetupStatement,
    compose_command,
)
from penstock.rds.values import AssociatedRole

PLACE = S3Prefix(bucket="loads", prefix="raw/")


def make_owner(identifier: str = "orders", partition: str = "aws", region: str = "eu-west-1", **more: Any) -> Owner:
    """Return an instance."""
    given: dict[str, Any] = {"status": "available", "roles": (), "resource_id": f"db-{region.upper()}", **more}
    arn = f"arn:{partition}:rds:{region}:111122223333:db:{identifier}"
    return Owner(kind="instance", identifier=identifier, arn=arn, region=region, **given)


def make_found(owner: Owner) -> Found:
    """Return what there is when nothing is."""
    extension = ExtensionFacts(
        database_oid=16384,
        database="app data",
        is_available=True,
        is_installed=False,
        has_commons=False,
        is_commons_needed=False,
        schemas=["aws_commons", "aws_s3"],
    )
    return Found(owner=owner, role=None, policies=(), extensions=(extension,))


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_every_arn_is_of_the_partition(partition: str) -> None:
    """Of roles, policies, buckets."""
    owner = make_owner(partition=partition)
    steps = plan_steps(make_found(owner), PLACE, BucketKey())
    texts = [compose_command(step, owner=owner, server="host=db1", profile="work") for step in steps]
    texts += [write_document(compose_policy(owner, PLACE, None)), write_document(compose_trust(owner))]
    assert set(re.findall(r"\barn:([a-z-]+):", " ".join(texts))) == {partition}


@pytest.mark.parametrize("is_other", [False, True])
def test_extension_by_which_another_role_imports_is_not_dropped(*, is_other: bool) -> None:
    """The preparation failed before it created anything, and an administrator has made role and extension since."""
    other = AssociatedRole(arn="arn:aws:iam::111122223333:role/theirs", feature="s3Import", status="ACTIVE")
    owner = make_owner(roles=(other,) if is_other else ())
    changes = find_changes(make_found(owner), PLACE, "hold")
    found = make_found(owner)
    there = replace(found.extensions[0], is_installed=True, has_commons=True)
    steps = plan_undo(replace(found, extensions=(there,)), changes)
    assert [step.done for step in steps if isinstance(step, SetupStatement)] == (
        []
        if is_other
        else ["dropped extension aws_s3 in database app data", "dropped extension aws_commons in database app data"]
    )


def test_names_are_within_the_limits() -> None:
    """Of the longest identifier; two regions or two places do not share one."""
    owner = make_owner("a" * 63)
    others = [make_owner("a" * 63, region=region) for region in ("us-east-1", "us-west-2")]
    names = {name_role(one) for one in (owner, *others)} | {name_policy(owner, PLACE)}
    names.add(name_policy(owner, S3Prefix(bucket="loads", prefix="raw")))
    assert len(names) == 5
    assert all(re.fullmatch(r"[\w+=,.@-]{1,64}", name, re.ASCII) for name in names)


def test_records_survive_as_tags() -> None:
    """AWS allows 128 characters in a key and 256 in a value."""
    owner = make_owner("a" * 63)
    changes = find_changes(make_found(owner), PLACE, "0123456789abcdef")
    hold = Hold(
        holder_id="0123456789abcdef", target_oid=SERVER, names=tuple(each.name for each in changes), stands=True
    )
    tags = hold_tags(hold) | change_tags(changes)
    assert all(len(key) <= 128 and len(value) <= 256 for key, value in tags.items())
    assert all(re.fullmatch(r"[\w .:/=+@-]*", text) for pair in tags.items() for text in pair)
    assert {(each.kind, each.name): dict(each.record) for each in read_changes(tags)} == {
        (each.kind, each.name): dict(each.record) for each in changes
    }
    (read,) = read_holds(tags)
    assert (read.names, read.stands, read.until) == (hold.names, True, None)


def test_document_is_ascii_and_within_latin_1() -> None:
    """As IAM wants it, whatever the prefix has."""
    place = S3Prefix(bucket="loads", prefix="日本/é")
    text = write_document(compose_policy(make_owner(), place, None))
    assert text.isascii()
    assert json.loads(text)["Statement"][1]["Resource"] == ["arn:aws:s3:::loads/日本/é*"]


def test_invalid_role_is_an_error() -> None:
    """RDS cannot assume it: waiting for it would not end."""
    owner = make_owner()
    role = AssociatedRole(arn=owner.role_arn(name_role(owner)), feature="s3Import", status="INVALID")
    with pytest.raises(AwsError, match="INVALID"):
        plan_steps(make_found(make_owner(roles=(role,))), PLACE, BucketKey())


def test_database_name_is_quoted_in_commands() -> None:
    """For libpq, and for the shell."""
    owner = make_owner()
    *_, last = plan_steps(make_found(owner), PLACE, BucketKey())
    expected = """psql 'host=db1 dbname='"'"'app data'"'"'' -c 'CREATE EXTENSION aws_s3 CASCADE'"""
    assert compose_command(last, owner=owner, server="host=db1") == expected


GATEWAY = {
    "VpcEndpointId": "vpce-1",
    "VpcEndpointType": "Gateway",
    "ServiceName": "com.amazonaws.eu-west-1.s3",
    "State": "available",
}
INTERFACE = {**GATEWAY, "VpcEndpointId": "vpce-2", "VpcEndpointType": "Interface", "PrivateDnsEnabled": True}


def table(name: str, *routes: dict[str, str], subnet: str | None = None) -> dict[str, Any]:
    """Return a route table, by default the main one."""
    return {
        "RouteTableId": name,
        "Associations": [{"Main": True} if subnet is None else {"SubnetId": subnet}],
        "Routes": list(routes),
    }


def default(**target: str) -> dict[str, str]:
    """Return a default route."""
    return {"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **target}


@pytest.mark.parametrize(
    ("tables", "endpoints", "is_public", "ways", "lacking"),
    [
        ([table("m")], [], False, (), ("a", "b")),
        ([table("m", {"GatewayId": "vpce-1"})], [GATEWAY], False, ("gateway endpoint vpce-1",), ()),
        ([table("m", {"GatewayId": "vpce-1"})], [{**GATEWAY, "State": "deleting"}], False, (), ("a", "b")),
        ([table("m", {"GatewayId": "vpce-1"})], [], False, (), ("a", "b")),
        ([table("m")], [INTERFACE], False, ("interface endpoint vpce-2",), ()),
        ([table("m")], [{**INTERFACE, "PrivateDnsEnabled": False}], False, (), ("a", "b")),
        ([table("m")], [{**INTERFACE, "ServiceName": "com.amazonaws.eu-west-1.s3express"}], False, (), ("a", "b")),
        ([table("m", default(NatGatewayId="nat-1"))], [], False, ("NAT gateway nat-1",), ()),
        ([table("m", default(NatGatewayId="nat-1", State="blackhole"))], [], False, (), ("a", "b")),
        ([table("m", default(GatewayId="igw-1"))], [], False, (), ("a", "b")),
        ([table("m", default(GatewayId="igw-1"))], [], True, ("internet gateway igw-1",), ()),
        ([table("m", default(TransitGatewayId="tgw-1"))], [], False, ("default route through tgw-1",), ()),
        (
            [table("m"), table("r", default(NatGatewayId="nat-1"), subnet="b")],
            [],
            False,
            ("NAT gateway nat-1",),
            ("a",),
        ),
        ([], [], False, (), ("a", "b")),
    ],
)
def test_route_is_found(
    tables: list[Any], endpoints: list[Any], is_public: bool, ways: tuple[str, ...], lacking: tuple[str, ...]
) -> None:
    """For each subnet by its own table or the main one."""
    found = judge_route("vpc-1", ["a", "b"], tables, endpoints, is_public=is_public)
    assert (found.ways, found.lacking) == (ways, lacking)
    assert found.tables == (("m",) if lacking and tables else ())
