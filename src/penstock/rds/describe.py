"""Describes the instance or cluster of an endpoint, and whether this host is near it.

The calls that find the server must succeed, and its identity must match. If AWS denies any other call, the description
has a gap.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import shlex
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from http.client import HTTPException
from typing import TYPE_CHECKING

from penstock.core.aws.calls import Calls, Raw
from penstock.core.connect.conninfo import given_settings, parse_conninfo
from penstock.core.connect.endpoints import RdsEndpoint, parse_endpoint
from penstock.core.errors import AwsError, UsageError
from penstock.core.slotted import slotted
from penstock.core.units import format_duration
from penstock.rds.clients import AwsClients, find_endpoint, locate_endpoint, locate_identifier, resolve_names
from penstock.rds.metrics import ask_local_storage, ask_recent, newest
from penstock.rds.shapes import Answers, ec2_type, name_sibling, read_class, read_cluster, read_instance
from penstock.rds.values import InstanceClass, Nearness, RdsDescription

if TYPE_CHECKING:
    from penstock.rds.clients import Located, Resolve

# The address of EC2's instance metadata, and how long to wait for an answer. Packets from hosts outside EC2 to this
# address are dropped, so the wait is short.
_METADATA_URL = "http://169.254.169.254"
_METADATA_TIMEOUT_S = 1.0
_METADATA_LINE = re.compile(r"[A-Za-z0-9:-]+")


@slotted
class HostPlace:
    """What EC2's instance metadata has of this host: its availability zone, and its security groups' ids."""

    # None outside EC2.
    zone: str | None = None
    security_groups: tuple[str, ...] = ()


def read_host_place() -> HostPlace:
    """Return what EC2's instance metadata (version 2) has of this host.

    Waits at most two seconds for the first answer.
    Source: EC2 User Guide, "Access instance metadata for an EC2 instance".
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return HostPlace()
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _METADATA_URL).rstrip("/")
    try:
        token = _request("PUT", f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})

        def get(path: str) -> list[str]:
            text = _request("GET", f"{base}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})
            return [line for line in text.splitlines() if _METADATA_LINE.fullmatch(line)]

        (zone,), (mac,) = get("placement/availability-zone"), get("mac")
        groups = get(f"network/interfaces/macs/{mac}/security-group-ids")
    except (HTTPException, OSError, ValueError):
        return HostPlace()
    return HostPlace(zone=zone, security_groups=tuple(groups))


def _request(method: str, url: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 (AWS's variable, or http)
    # Do not use the proxies of the environment, because they cannot reach this host's own metadata.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_METADATA_TIMEOUT_S) as answer:
        text: str = answer.read(1024).decode("ascii")
    return text


def find_host_address(endpoint: str | None, port: int | None) -> str | None:
    """Return the address from which this host connects to the endpoint, None if it is not known.

    It is that of a UDP socket connected to the endpoint, which sends nothing. It is not known if it is private and the
    endpoint's is public, or vice versa, because it is then translated on the way.
    """
    if endpoint is None or port is None:
        return None
    try:
        family, kind, _, _, target = socket.getaddrinfo(endpoint, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            address: str = probe.getsockname()[0]
    except OSError:
        return None
    is_translated = ipaddress.ip_address(address).is_private != ipaddress.ip_address(target[0]).is_private
    return None if is_translated else address


def judge_nearness(raw: Raw, groups: list[Raw] | None, *, host: HostPlace, host_address: str | None) -> Nearness:
    """Return the availability zones of this host and of an instance, and whether its security groups admit this host.

    `raw` is the instance, and `groups` are its security groups, as AWS's API describes them; `groups` is None if AWS
    did not return them. Pure.
    """
    ids = tuple(group["VpcSecurityGroupId"] for group in raw.get("VpcSecurityGroups", ()))
    port = raw.get("Endpoint", {}).get("Port")
    is_admitted, reason = _judge_admission(groups, host, host_address, port)
    return Nearness(
        zone=raw.get("AvailabilityZone"),
        host_zone=host.zone,
        security_groups=ids,
        is_host_admitted=is_admitted,
        reason=reason,
        command=_compose_rule(ids[0], host, str(host_address), port) if is_admitted is False else None,
    )


def _judge_admission(
    groups: list[Raw] | None, host: HostPlace, address: str | None, port: int | None
) -> tuple[bool | None, str]:
    if groups is None:
        return None, "the groups could not be read"
    if address is None or port is None:
        return None, "the address from which this host connects is not known"
    rules = [(group["GroupId"], rule) for group in groups for rule in group.get("IpPermissions", ())]
    rules = [(group, rule) for group, rule in rules if _covers(rule, port)]
    if (found := _find_rule(rules, host, address)) is not None:
        return True, found
    if any(rule.get("PrefixListIds") for _, rule in rules):
        return None, f"rules name prefix lists, which may contain {address}"
    named = dict.fromkeys(pair["GroupId"] for _, rule in rules for pair in rule.get("UserIdGroupPairs", ()))
    if named and not host.security_groups:
        return None, f"rules name {', '.join(named)}; name this host's groups with --security-group"
    return False, f"no rule for port {port} contains {address}" + (" or names its groups" if named else "")


def _find_rule(rules: Sequence[tuple[str, Raw]], host: HostPlace, address: str) -> str | None:
    """Return which rule admits a host, None if no rule does. Each rule has the id of the group that has it."""
    own = ipaddress.ip_address(address)
    for group, rule in rules:
        for network in _networks(rule):
            if own in ipaddress.ip_network(network, strict=False):
                return f"a rule of {group} for {network} contains {address}"
        for pair in rule.get("UserIdGroupPairs", ()):
            # A rule that names a group is for the private addresses of the hosts in the group.
            if own.is_private and pair["GroupId"] in host.security_groups:
                return f"a rule of {group} names {pair['GroupId']}, which this host is in"
    return None


def _compose_rule(group: str, host: HostPlace, address: str, port: int) -> str | None:
    """Return the `aws` command that adds a rule for this host to a security group, None for an IPv6 address."""
    words = ["aws", "ec2", "authorize-security-group-ingress", "--group-id", group, "--protocol", "tcp"]
    words += ["--port", str(port)]
    if host.security_groups and ipaddress.ip_address(address).is_private:
        return shlex.join([*words, "--source-group", host.security_groups[0]])
    return None if ":" in address else shlex.join([*words, "--cidr", f"{address}/32"])


def _covers(rule: Raw, port: int) -> bool:
    """Return whether a rule is for a TCP port. Protocol -1 means all protocols."""
    protocol = rule.get("IpProtocol")
    return protocol == "-1" or (protocol == "tcp" and rule.get("FromPort", 0) <= port <= rule.get("ToPort", 65535))


def _networks(rule: Raw) -> Iterator[str]:
    yield from (each["CidrIp"] for each in rule.get("IpRanges", ()))
    yield from (each["CidrIpv6"] for each in rule.get("Ipv6Ranges", ()))


_ENGINES = ("postgres", "aurora-postgresql", "custom-postgres")


def describe_instance(
    wanted: str,
    *,
    now: datetime,
    region: str | None = None,
    profile: str | None = None,
    is_brief: bool = False,
    security_groups: Sequence[str] = (),
    resolve: Resolve = resolve_names,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> RdsDescription:
    """Return AWS's description of the server of an endpoint, or of an instance or a cluster by its identifier.

    `wanted` is a host name (RDS's own, or one that DNS resolves to it), an identifier, or a resource id (db-ABC...).
    RDS's host names contain the region. For other names the region is `region` or the configured one. `now` is the time
    up to which metrics are read. With `is_brief`, only the calls that find the server are made. The description then
    has what these calls return, such as windows, and all else is None. `security_groups` are those of this host, by
    default those of EC2's instance metadata.

    Raises AwsError if the server cannot be found or is not PostgreSQL. docs/rds.md lists the permissions. Only those of
    the first call, which finds the server, are required.
    """
    endpoint = find_endpoint(wanted, resolve=resolve)
    if endpoint is None and "." in wanted:
        raise AwsError(
            f"{wanted} is not an endpoint of Amazon RDS, and DNS does not resolve it to one",
            hint="Name the instance or the cluster by its identifier, and the region with --region.",
        )
    with closing(make_clients(region=_choose_region(endpoint, region), profile=profile)) as clients:
        return describe_by(clients, wanted, endpoint, now=now, is_brief=is_brief, security_groups=security_groups)


def describe_by(
    clients: AwsClients,
    wanted: str,
    endpoint: RdsEndpoint | None,
    *,
    now: datetime,
    is_brief: bool = False,
    security_groups: Sequence[str] = (),
) -> RdsDescription:
    """Return what `describe_instance` returns, by the given clients, which the caller closes.

    `endpoint` is the endpoint that `wanted` names, None if it is an identifier. Raises AwsError.
    """
    calls = Calls(clients)
    located = locate_identifier(calls, wanted) if endpoint is None else locate_endpoint(calls, endpoint)
    _check_engine(located, wanted)
    answers = Answers() if is_brief else _ask_more(calls, located, now=now, security_groups=security_groups)
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


def _ask_more(calls: Calls, located: Located, *, now: datetime, security_groups: Sequence[str]) -> Answers:
    """Make all calls that are needed after the server was found, at the same time."""
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
            lambda: _ask_nearness(calls, instance, security_groups),
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
    # Use a filter. If EC2 is asked for an unknown type by name, it returns an error.
    wanted = [{"Name": "instance-type", "Values": [ec2_type(name)]}]
    found = calls.ask("ec2", "describe_instance_types", "InstanceTypes", Filters=wanted)
    return read_class(name, found[0] if found else None)


def _ask_nearness(calls: Calls, instance: Raw | None, security_groups: Sequence[str]) -> Nearness | None:
    if instance is None:
        return None
    ids = [group["VpcSecurityGroupId"] for group in instance.get("VpcSecurityGroups", ())]
    # Without ids, EC2 would list the groups of the whole region.
    groups = calls.ask("ec2", "describe_security_groups", "SecurityGroups", GroupIds=ids) if ids else None
    endpoint = instance.get("Endpoint", {})
    host = read_host_place() if "AvailabilityZone" in instance else HostPlace()
    return judge_nearness(
        instance,
        groups,
        host=replace(host, security_groups=tuple(security_groups)) if security_groups else host,
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


def describe_rds(
    wanted: str | None = None,
    *,
    now: datetime,
    to: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    security_groups: Sequence[str] = (),
) -> RdsDescription:
    """Return AWS's description of `wanted`, or of the server that `to` or the PG* variables name.

    `wanted` is an endpoint, an identifier or a resource id. `region` and `profile` are AWS's; by default the configured
    ones are used. `security_groups` are those of this host, by default those of EC2's instance metadata. docs/rds.md
    lists the AWS permissions. Raises UsageError, AwsError.
    """
    if wanted is not None and to is not None:
        raise UsageError("an endpoint or identifier cannot be used with --to", hint="Use one of them.")
    if wanted is None:
        wanted = read_full_host(to)
    return describe_instance(wanted, now=now, region=region, profile=profile, security_groups=security_groups)


def read_full_host(to: str | None = None) -> str:
    """Return the host that the connection string `to` or the PG* variables name (see `read_host`).

    Raises UsageError if they name no host, or one without a dot: it is not an endpoint, and the functions that ask AWS
    would take it for an identifier.
    """
    host = read_host(to)
    if "." not in host:
        raise UsageError(
            f'host "{host}" is not an endpoint of Amazon RDS',
            hint="Through a tunnel, give the endpoint as host and the tunnel's end as hostaddr and port.",
        )
    return host


def read_host(to: str | None = None) -> str:
    """Return the host that a connection string or the PG* variables name. Of several, return the first of RDS.

    If none of several is of RDS, return the first. Raises UsageError if they name no host.
    """
    named = given_settings(parse_conninfo(to or ""), os.environ).get("host", "")
    hosts = [host for host in named.split(",") if host and not host.startswith("/")]
    if not hosts:
        raise UsageError(
            "no RDS instance was given",
            hint="Name its endpoint or identifier, or its host by --to or PGHOST.",
        )
    return next((host for host in hosts if parse_endpoint(host)), hosts[0])


_log = logging.getLogger(__name__)


# How long a recording waits for AWS's description of the instance.
_PATIENCE_S = 1.5


class BriefQuestion:
    """A thread that asks AWS for a brief description of an endpoint's server. `answer` waits for it.

    Never raises, and never prompts the user for an MFA code. Needs rds:DescribeDBInstances, for clusters
    rds:DescribeDBClusters. `answer` waits until `patience_s` seconds after the constructor was called, so the caller
    can do other work in between. The attribute `refusal` says why there is no answer.
    """

    def __init__(
        self,
        host: str,
        *,
        now: datetime,
        patience_s: float = _PATIENCE_S,
        make_clients: Callable[..., AwsClients] = AwsClients,
    ) -> None:
        self._until_s = time.monotonic() + patience_s
        self._found: RdsDescription | None = None
        self._done = threading.Event()
        self.refusal = f"AWS has not answered within {format_duration(patience_s)}"

        def make(*, region: str | None, profile: str | None) -> AwsClients:
            clients = make_clients(region=region, profile=profile, timeout_s=patience_s)
            if clients.has_prompt():
                raise AwsError("AWS credentials may need a device code, which a load does not wait for")
            return clients

        def ask() -> None:
            try:
                self._found = describe_instance(host, now=now, is_brief=True, make_clients=make)
            except AwsError as error:
                _log.info("%s: %s", error.message, error.detail)
                self.refusal = error.message
            finally:
                self._done.set()

        # A daemon thread does not keep the process from ending. A credential program or a service may hang.
        threading.Thread(target=ask, name="RDS instance", daemon=True).start()

    def answer(self) -> RdsDescription | None:
        """Return the description, or None if AWS refuses or does not answer in time."""
        self._done.wait(max(0.0, self._until_s - time.monotonic()))
        return self._found
