"""Reads and changes what an import from S3 needs in IAM, KMS, S3 and RDS. docs/rds.md lists the permissions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.core.aws.calls import Calls, Raw, explain, name_call, read_code
from penstock.core.errors import AwsError
from penstock.rds.clients import AwsClients, find_endpoint, locate_endpoint, resolve_names
from penstock.rds.s3_import.values import OWNER_TAG, BucketKey, Call, Owner, PolicyFacts, RoleFacts, S3Route
from penstock.rds.shapes import read_roles

_ANYWHERE = "0.0.0.0/0"


def find_route(calls: Calls, instance: Raw | None) -> S3Route:
    """Return which subnets of an instance have a route to S3.

    `instance` is the instance as RDS's API describes it. If a call is denied, the result has the reason instead.
    """
    group = {} if instance is None else instance.get("DBSubnetGroup", {})
    if instance is None or not group.get("VpcId"):
        return S3Route(reason="AWS does not report the subnets of the instance")
    vpc = [{"Name": "vpc-id", "Values": [group["VpcId"]]}]
    tables, endpoints = calls.together(
        lambda: calls.ask("ec2", "describe_route_tables", "RouteTables", Filters=vpc),
        lambda: calls.ask("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=vpc),
    )
    if tables is None or endpoints is None:
        gaps = [gap for gap in calls.gaps if gap.call in ("ec2:DescribeRouteTables", "ec2:DescribeVpcEndpoints")]
        return S3Route(vpc=group["VpcId"], reason="; ".join(f"{gap.call}: {gap.reason}" for gap in gaps))
    subnets = [each["SubnetIdentifier"] for each in group.get("Subnets", [])]
    is_public = bool(instance.get("PubliclyAccessible"))
    return judge_route(group["VpcId"], subnets, tables, endpoints, is_public=is_public)


def judge_route(
    vpc: str, subnets: Sequence[str], tables: Sequence[Raw], endpoints: Sequence[Raw], *, is_public: bool
) -> S3Route:
    """Return which of the subnets have a route to S3.

    `tables` and `endpoints` are the route tables and the endpoints of VPC `vpc`, as EC2's API describes them.
    `is_public` is whether the instance has a public address: only then an internet gateway is a route.
    """
    ours = [each for each in endpoints if each.get("ServiceName", "").endswith(".s3")]
    usable = {each["VpcEndpointId"]: each for each in ours if each.get("State", "").lower() == "available"}
    private = [
        f"interface endpoint {name}"
        for name, each in usable.items()
        if each.get("VpcEndpointType") == "Interface" and each.get("PrivateDnsEnabled")
    ]
    ways: dict[str, None] = dict.fromkeys(private)
    lacking: list[str] = []
    without: dict[str, None] = {}
    for subnet in subnets:
        table = _find_table(subnet, tables)
        found = [] if table is None else _find_ways(table, usable, is_public=is_public)
        ways.update(dict.fromkeys(found))
        if not found and not private:
            lacking.append(subnet)
            without.update({} if table is None else {table["RouteTableId"]: None})
    return S3Route(vpc=vpc, ways=tuple(ways), lacking=tuple(lacking), tables=tuple(without))


def _find_table(subnet: str, tables: Sequence[Raw]) -> Raw | None:
    """Return the route table of a subnet. A subnet without its own table uses the VPC's main one."""
    links = [(link, table) for table in tables for link in table.get("Associations", [])]
    own = [table for link, table in links if link.get("SubnetId") == subnet]
    main = [table for link, table in links if link.get("Main")]
    return next(iter([*own, *main]), None)


def _find_ways(table: Raw, endpoints: dict[str, Raw], *, is_public: bool) -> list[str]:
    found = []
    for route in table.get("Routes", []):
        gateway = route.get("GatewayId", "")
        if route.get("State", "active") != "active":
            continue
        if gateway in endpoints:
            found.append(f"gateway endpoint {gateway}")
        elif route.get("DestinationCidrBlock") == _ANYWHERE:
            if route.get("NatGatewayId"):
                found.append(f"NAT gateway {route['NatGatewayId']}")
            elif gateway.startswith("igw-"):
                found += [f"internet gateway {gateway}"] if is_public else []
            else:
                other = route.get("TransitGatewayId") or route.get("NetworkInterfaceId") or gateway
                found.append(f"default route through {other}")
    return found


_MISSING = "NoSuchEntity"
_DENIED: frozenset[str | None] = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_ACTION = re.compile(r"not authorized to perform: ([a-z0-9-]+:\w+)")

# The code with which RDS rejects the ARN of a new role as invalid. RDS does so until IAM has passed the new role on to
# RDS, which takes seconds, so the call is retried for _SPREAD_S.
#
# Source: github.com/hashicorp/terraform-provider-aws issue 24963
_NOT_YET = "InvalidParameterValue"
_SPREAD_S = 60.0
_SPREAD_LOOK_S = 3.0

# The codes with which RDS refuses to remove a role that is already removed. RDS may still list such a role for a while.
_GONE: frozenset[str | None] = frozenset({"DBInstanceRoleNotFound", "DBClusterRoleNotFound"})

# Maps calls to the actions of IAM policies, if the two have different names.
_ACTIONS = {"s3:GetBucketEncryption": "s3:GetEncryptionConfiguration"}


class RdsS3Import:
    """Makes the calls to AWS that prepare a server for importing from S3. Methods raise AwsError.

    `host` is the server's endpoint, or a name that DNS resolves to it.
    """

    def __init__(
        self,
        host: str,
        *,
        profile: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._host = host
        endpoint = find_endpoint(host, resolve=resolve_names)
        if endpoint is None:
            raise AwsError(f"{host} is not an endpoint of Amazon RDS, and DNS does not resolve it to one")
        self._endpoint = endpoint
        self._clients = AwsClients(region=endpoint.region, profile=profile)
        self._calls = Calls(self._clients)
        self._clock = clock
        self._sleep = sleep

    def read_owner(self) -> Owner:
        """Return the cluster of the endpoint's server, or its instance if the server is not in a cluster."""
        located = locate_endpoint(self._calls, self._endpoint)
        raw, instance = located.cluster, located.instance
        names = ("DBClusterIdentifier", "DBClusterArn", "DbClusterResourceId", "Status")
        if raw is None:
            if instance is None or instance.get("DBClusterIdentifier"):
                hint = "Allow rds:DescribeDBClusters."
                raise AwsError(f"AWS does not describe the cluster of {self._host}", hint=hint)
            raw, names = instance, ("DBInstanceIdentifier", "DBInstanceArn", "DbiResourceId", "DBInstanceStatus")
        identifier, arn, resource_id, status = names
        return Owner(
            kind="instance" if located.cluster is None else "cluster",
            identifier=raw[identifier],
            arn=raw[arn],
            resource_id=raw[resource_id],
            region=self._clients.region,
            status=raw.get(status),
            roles=read_roles(raw),
        )

    def read_tags(self, owner: Owner) -> dict[str, str]:
        """Return the tags of the instance or cluster, by key."""
        return _tags(self._act("rds", "list_tags_for_resource", ResourceName=owner.arn).get("TagList", []))

    def find_role(self, name: str) -> RoleFacts | None:
        """Return the IAM role with this name and its policies, None if it does not exist."""
        answer = self._find("iam", "get_role", RoleName=name)
        if answer is None:
            return None
        role = answer["Role"]
        with self._naming_action("iam", "list_attached_role_policies"):
            attached = self._calls.need("iam", "list_attached_role_policies", "AttachedPolicies", RoleName=name)
        with self._naming_action("iam", "list_role_policies"):
            inline = self._calls.need("iam", "list_role_policies", "PolicyNames", RoleName=name)
        return RoleFacts(
            name=name,
            arn=role["Arn"],
            owner_tag=_tags(role.get("Tags", [])).get(OWNER_TAG),
            trust=role["AssumeRolePolicyDocument"],
            attached=tuple(each["PolicyArn"] for each in attached),
            inline=tuple(map(str, inline)),
        )

    def find_policy(self, arn: str) -> PolicyFacts | None:
        """Return the IAM policy with this ARN and the document of its default version, None if it does not exist."""
        answer = self._find("iam", "get_policy", PolicyArn=arn)
        if answer is None:
            return None
        policy = answer["Policy"]
        version = self._act("iam", "get_policy_version", PolicyArn=arn, VersionId=policy["DefaultVersionId"])
        with self._naming_action("iam", "list_policy_versions"):
            versions = self._calls.need("iam", "list_policy_versions", "Versions", PolicyArn=arn)
        return PolicyFacts(
            name=policy["PolicyName"],
            arn=arn,
            owner_tag=_tags(policy.get("Tags", [])).get(OWNER_TAG),
            document=version["PolicyVersion"]["Document"],
            other_versions=tuple(each["VersionId"] for each in versions if not each["IsDefaultVersion"]),
        )

    def find_key(self, bucket: str) -> BucketKey:
        """Return the user's KMS key with which objects of a bucket are encrypted by default.

        The result has no key if the bucket has none, or AWS's own key aws/s3, which needs no permission. If the key
        cannot be read, the result has the reason.
        """
        try:
            answer = self._act("s3", "get_bucket_encryption", Bucket=bucket)
            rules = answer["ServerSideEncryptionConfiguration"]["Rules"]
            given = [each.get("ApplyServerSideEncryptionByDefault", {}).get("KMSMasterKeyID") for each in rules]
            name = next(filter(None, given), None)
            if name is None or ":key/" in name:
                return BucketKey(arn=name)
            key = self._act("kms", "describe_key", KeyId=name)["KeyMetadata"]
        except AwsError as error:
            code = _code(error)
            if code == "ServerSideEncryptionConfigurationNotFoundError":
                return BucketKey()
            if code in ("NoSuchBucket", "404"):
                raise AwsError(f'bucket "{bucket}" does not exist', hint="Check --bucket and the account.") from error
            return BucketKey(reason=f"{error.message}: {error.detail}".rstrip("."))
        return BucketKey(arn=None if key.get("KeyManager") == "AWS" else key["Arn"])

    def find_route(self) -> S3Route:
        """Return which subnets of the server's instance have a route to S3."""
        return find_route(self._calls, locate_endpoint(self._calls, self._endpoint).instance)

    def call(self, call: Call) -> None:
        """Make a call to AWS. Adding a role is retried for a minute, because IAM's changes take time to reach RDS."""
        began_s = self._clock()
        while True:
            try:
                self._act(call.service, call.operation, **call.parameters)
            except AwsError as error:
                if call.operation.startswith("remove_role_from") and _code(error) in _GONE:
                    return
                is_early = call.operation.startswith("add_role_to") and _code(error) == _NOT_YET
                if not is_early or self._clock() - began_s > _SPREAD_S:
                    raise
                self._sleep(_SPREAD_LOOK_S)
            else:
                return

    def close(self) -> None:
        """Close all connections to AWS."""
        self._clients.close()

    def _find(self, service: str, operation: str, **parameters: Any) -> Raw | None:
        try:
            return self._act(service, operation, **parameters)
        except AwsError as error:
            if _code(error) == _MISSING:
                return None
            raise

    def _act(self, service: str, operation: str, **parameters: Any) -> Raw:
        with self._naming_action(service, operation):
            return self._calls.act(service, operation, **parameters)

    @contextmanager
    def _naming_action(self, service: str, operation: str) -> Iterator[None]:
        """Raise an error that names the denied action. The action may differ from the call, as iam:PassRole does."""
        try:
            yield
        except AwsError as error:
            cause = error.__cause__
            if not isinstance(cause, Exception) or read_code(cause) not in _DENIED:
                raise
            call = name_call(self._clients(service), service, operation)
            reason = explain(cause)
            named = _ACTION.search(reason)
            action = _ACTIONS.get(call, call) if named is None else named[1]
            raise AwsError(
                f"AWS denied {action}", detail=f"{reason}.", hint=f"Allow {action}: docs/rds.md has a policy."
            ) from cause


def _code(error: AwsError) -> str | None:
    cause = error.__cause__
    return read_code(cause) if isinstance(cause, Exception) else None


def _tags(pairs: list[Raw]) -> dict[str, str]:
    return {tag["Key"]: tag.get("Value", "") for tag in pairs}
