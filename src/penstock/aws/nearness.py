"""Compares this host with an RDS instance: its zone, and whether the instance's security groups admit its address."""

from __future__ import annotations

import ipaddress
import os
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING

from penstock.model.server.rds import Nearness

if TYPE_CHECKING:
    from penstock.aws.calls import Raw

# Hosts outside EC2 drop packets to this address, so the wait is short.
_METADATA_URL = "http://169.254.169.254"
_METADATA_TIMEOUT_S = 1.0


def read_host_zone() -> str | None:
    """Return this host's availability zone from EC2's instance metadata (version 2), or None outside EC2.

    Waits at most two seconds.
    Source: EC2 User Guide, "Access instance metadata for an EC2 instance".
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _METADATA_URL).rstrip("/")
    try:
        token = _request("PUT", f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        zone = _request(
            "GET", f"{base}/latest/meta-data/placement/availability-zone", {"X-aws-ec2-metadata-token": token}
        )
    except (HTTPException, OSError, ValueError):
        return None
    return zone if zone.isascii() and zone.replace("-", "").isalnum() else None


def _request(method: str, url: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 (AWS's variable, or http)
    # Do not use the proxies of the environment, because they cannot reach this host's own metadata.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_METADATA_TIMEOUT_S) as answer:
        text: str = answer.read(256).decode("ascii")
    return text


def find_host_address(endpoint: str | None, port: int | None) -> str | None:
    """Return the address from which the host connects to the endpoint, None if it may be translated on the way.

    A UDP socket is connected for this, which sends nothing.
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


def judge_nearness(raw: Raw, groups: list[Raw] | None, *, host_zone: str | None, host_address: str | None) -> Nearness:
    """Return how near this host is to an instance. `groups` are its security groups, None if AWS gave none. Pure."""
    ids = tuple(group["VpcSecurityGroupId"] for group in raw.get("VpcSecurityGroups", ()))
    is_admitted, reason = _judge_admission(groups, host_address, raw.get("Endpoint", {}).get("Port"))
    return Nearness(
        zone=raw.get("AvailabilityZone"),
        host_zone=host_zone,
        security_groups=ids,
        is_host_admitted=is_admitted,
        reason=reason,
    )


def _judge_admission(groups: list[Raw] | None, address: str | None, port: int | None) -> tuple[bool | None, str]:
    if groups is None:
        return None, "the groups could not be read"
    if address is None or port is None:
        return None, "the address from which this host connects is not known"
    rules = [rule for group in groups for rule in group.get("IpPermissions", ()) if _covers(rule, port)]
    for network in _networks(rules):
        if ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False):
            return True, f"{network} contains {address}"
    if any(rule.get("UserIdGroupPairs") or rule.get("PrefixListIds") for rule in rules):
        return None, f"rules name other groups or prefix lists, which may contain {address}"
    return False, f"no rule for port {port} contains {address}"


def _covers(rule: Raw, port: int) -> bool:
    """Return whether a rule is for a TCP port. Protocol -1 means all protocols."""
    protocol = rule.get("IpProtocol")
    return protocol == "-1" or (protocol == "tcp" and rule.get("FromPort", 0) <= port <= rule.get("ToPort", 65535))


def _networks(rules: Sequence[Raw]) -> Iterator[str]:
    for rule in rules:
        yield from (each["CidrIp"] for each in rule.get("IpRanges", ()))
        yield from (each["CidrIpv6"] for each in rule.get("Ipv6Ranges", ()))
