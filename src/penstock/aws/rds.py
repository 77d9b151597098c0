"""Describes the instance or cluster of an endpoint, from the answers of RDS, EC2 and CloudWatch.

The requested server must be found, and its identity must match. Every other call that is denied leaves a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.aws.calls import Calls, Raw
from penstock.aws.classes import ec2_type, name_sibling, read_class
from penstock.aws.clients import AwsClients
from penstock.aws.find import find_endpoint, locate_endpoint, locate_identifier, resolve_names
from penstock.aws.metrics import ask_local_storage, ask_recent, newest
from penstock.aws.nearness import find_host_address, judge_nearness, read_host_zone
from penstock.aws.shapes import Answers, read_cluster, read_instance
from penstock.errors import AwsError, UsageError
from penstock.model.server.rds import InstanceClass, Nearness, RdsDescription

if TYPE_CHECKING:
    from penstock.aws.find import Located, Resolve
    from penstock.model.server.endpoints import RdsEndpoint

_ENGINES = ("postgres", "aurora-postgresql", "custom-postgres")


def describe_instance(
    wanted: str,
    *,
    now: datetime,
    region: str | None = None,
    profile: str | None = None,
    is_brief: bool = False,
    resolve: Resolve = resolve_names,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> RdsDescription:
    """Return AWS's description of the server of an endpoint, or of an instance or a cluster by its identifier.

    `wanted` is a host name (RDS's own, or one that DNS resolves to it), an identifier, or a resource id (db-ABC...).
    RDS's host names contain the region. For other names the region is `region` or the configured one.
    With `is_brief`, only the calls that find the server are made. They return its windows; everything that only other
    calls return is None.
    Raises AwsError if the server cannot be found or is another one. docs/rds.md lists the permissions. Only those of
    the first call, which finds the server, are required.
    """
    endpoint = find_endpoint(wanted, resolve=resolve)
    if endpoint is None and "." in wanted:
        raise AwsError(
            f"{wanted} is not an endpoint of Amazon RDS, and DNS does not resolve it to one",
            hint="Name the instance or the cluster by its identifier, and the region with --region.",
        )
    with closing(make_clients(region=_choose_region(endpoint, region), profile=profile)) as clients:
        return describe_by(clients, wanted, endpoint, now=now, is_brief=is_brief)


def describe_by(
    clients: AwsClients, wanted: str, endpoint: RdsEndpoint | None, *, now: datetime, is_brief: bool = False
) -> RdsDescription:
    """Return what `describe_instance` returns, with clients that stay open. `endpoint` is that of `wanted`, or None."""
    calls = Calls(clients)
    located = locate_identifier(calls, wanted) if endpoint is None else locate_endpoint(calls, endpoint)
    _check_engine(located, wanted)
    answers = Answers() if is_brief else _ask_more(calls, located, now=now)
    instance, cluster = located.instance, located.cluster
    return RdsDescription(
        region=clients.region,
        found_by=located.found_by,
        instance=None if instance is None else read_instance(instance, answers, cluster=cluster, on_gap=calls.note),
        cluster=None if cluster is None else read_cluster(cluster, answers, on_gap=calls.note),
        may_reach=located.may_reach,
        gaps=tuple(sorted(calls.gaps, key=lambda gap: gap.call)),
    )


def _choose_region(endpoint: RdsEndpoint | None, region: str | None) -> str | None:
    if endpoint is None:
        return region
    if region is not None and region != endpoint.region:
        raise UsageError(f"{endpoint.host} is in region {endpoint.region}, not in {region}")
    return endpoint.region


def _check_engine(located: Located, wanted: str) -> None:
    """Raise AwsError if the server is not PostgreSQL."""
    engine = (located.instance or located.cluster or {}).get("Engine", "")
    if not engine.startswith(_ENGINES):
        raise AwsError(f"{wanted} is not PostgreSQL", detail=f"Its engine is {engine}.")


def _ask_more(calls: Calls, located: Located, *, now: datetime) -> Answers:
    """Make all remaining calls at the same time."""
    instance, cluster = located.instance, located.cluster
    return Answers(
        *calls.together(
            lambda: _ask_hardware(calls, instance),
            lambda: None if instance is None else calls.ask("rds", "describe_db_instances", "DBInstances"),
            lambda: None if cluster is None else calls.ask("rds", "describe_db_clusters", "DBClusters"),
            lambda: _ask_maintenance(calls, instance, "DBInstanceArn"),
            lambda: _ask_maintenance(calls, cluster, "DBClusterArn"),
            lambda: _ask_free_bytes(calls, instance, now=now),
            lambda: None if instance is None else ask_local_storage(calls, instance, now=now),
            lambda: _ask_sibling(calls, instance),
            lambda: _ask_nearness(calls, instance),
        )
    )


def _ask_hardware(calls: Calls, instance: Raw | None) -> Raw | None:
    type_name = None if instance is None else ec2_type(instance["DBInstanceClass"])
    if type_name is None:
        return None
    found = calls.ask("ec2", "describe_instance_types", "InstanceTypes", InstanceTypes=[type_name])
    if found == []:
        calls.note("ec2:DescribeInstanceTypes", f"EC2 does not know {type_name} in this region")
    return found[0] if found else None


def _ask_sibling(calls: Calls, instance: Raw | None) -> InstanceClass | None:
    """Return the class with local storage that this instance could have, or None if AWS offers none for its engine."""
    name = None if instance is None else name_sibling(instance["DBInstanceClass"])
    if instance is None or name is None:
        return None
    options = calls.ask(
        "rds",
        "describe_orderable_db_instance_options",
        "OrderableDBInstanceOptions",
        Engine=instance["Engine"],
        EngineVersion=instance.get("EngineVersion", ""),
        DBInstanceClass=name,
    )
    if not options:
        return None
    # Use a filter, because asking by name for a type that EC2 does not have is an error.
    wanted = [{"Name": "instance-type", "Values": [ec2_type(name)]}]
    found = calls.ask("ec2", "describe_instance_types", "InstanceTypes", Filters=wanted)
    return read_class(name, found[0] if found else None)


def _ask_nearness(calls: Calls, instance: Raw | None) -> Nearness | None:
    if instance is None:
        return None
    ids = [group["VpcSecurityGroupId"] for group in instance.get("VpcSecurityGroups", ())]
    # Without ids, EC2 would list the groups of the whole region.
    groups = calls.ask("ec2", "describe_security_groups", "SecurityGroups", GroupIds=ids) if ids else None
    endpoint = instance.get("Endpoint", {})
    return judge_nearness(
        instance,
        groups,
        host_zone=read_host_zone() if "AvailabilityZone" in instance else None,
        host_address=find_host_address(endpoint.get("Address"), endpoint.get("Port")) if groups else None,
    )


def _ask_maintenance(calls: Calls, owner: Raw | None, arn_key: str) -> list[Raw] | None:
    if owner is None:
        return None
    return calls.ask(
        "rds",
        "describe_pending_maintenance_actions",
        "PendingMaintenanceActions",
        ResourceIdentifier=owner[arn_key],
    )


def _ask_free_bytes(calls: Calls, instance: Raw | None, *, now: datetime) -> int | None:
    """Return the free space of the volumes, or None for Aurora, because an Aurora volume belongs to no instance."""
    if instance is None or instance["Engine"].startswith("aurora"):
        return None
    points = ask_recent(calls, instance, "FreeStorageSpace", now=now)
    if points == []:
        calls.note("cloudwatch:GetMetricStatistics", "no recent value of FreeStorageSpace")
    return int(newest(points)["Average"]) if points else None
