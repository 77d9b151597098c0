"""Finds an instance's route to S3: a gateway or interface endpoint, a NAT gateway, or another default route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.s3_import import S3Route

if TYPE_CHECKING:
    from penstock.aws.calls import Calls, Raw

_ANYWHERE = "0.0.0.0/0"


def find_route(calls: Calls, instance: Raw | None) -> S3Route:
    """Return whether the subnets of an instance have a route to S3. Calls that are denied make it unknown."""
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
    """Return which of the subnets have a route to S3, from EC2's route tables and endpoints of their VPC.

    An internet gateway is a route only for an instance with a public address.
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
    """Return the route table of a subnet: its own, otherwise the VPC's main one."""
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
