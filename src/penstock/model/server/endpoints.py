"""Parses host names of Amazon RDS and Aurora: the kind of endpoint, the identifier, the region. Pure."""

from __future__ import annotations

import re
from typing import Literal

from penstock.frozen import frozen

# "instance" is the endpoint of a DB instance; "writer", "reader" and "custom" are endpoints of a cluster; "proxy",
# "global" and "shards" are RDS Proxy, the global writer endpoint of Aurora, and Limitless shard groups. The names of
# the last three do not show which servers they lead to.
EndpointKind = Literal["instance", "writer", "reader", "custom", "proxy", "global", "shards"]

_KIND_OF_PREFIX: dict[str, EndpointKind] = {
    "": "instance",
    "cluster-": "writer",
    "cluster-ro-": "reader",
    "cluster-custom-": "custom",
    "proxy-": "proxy",
    "global-": "global",
    "shardgrp-": "shards",
}

# The region is before "rds" or, in China, after it. The suffixes are those of botocore's endpoints.json.
_ENDPOINT = re.compile(
    r"(?P<name>[a-z0-9-]+)\.(?:endpoint\.)?"
    r"(?P<prefix>cluster-ro-|cluster-custom-|cluster-|proxy-|global-|shardgrp-|)(?P<account>[a-z0-9]+)\."
    r"(?:(?P<before>[a-z0-9-]+)\.rds|rds\.(?P<behind>[a-z0-9-]+))\."
    r"(?:amazonaws\.com(?:\.cn)?|amazonaws\.eu|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)"
)

# Any host name of Amazon RDS, including kinds that are not known yet. Decisions based on it must err on the safe side.
_RDS = re.compile(
    r".+\.(?:(?P<region>[a-z0-9-]+)\.rds\.amazonaws\.com(?:\.cn)?|rds\.(?P<china>cn-[a-z0-9-]+)\.amazonaws\.com\.cn)"
)

# The endpoint of an Aurora global database has this word in place of a region.
_NO_REGION = "global"


@frozen
class RdsEndpoint:
    """The parts of a host name of RDS."""

    host: str
    kind: EndpointKind
    # The identifier of the instance or cluster, or the name of a custom endpoint or proxy.
    name: str
    # RDS's code for an AWS account in a region. It distinguishes two instances of the same name.
    account: str
    region: str


def parse_endpoint(host: str) -> RdsEndpoint | None:
    """Return the parts of a host name of RDS or Aurora, or None for any other.

    Source: Aurora User Guide, "Amazon Aurora endpoint connections".

    >>> found = parse_endpoint("orders.cluster-ro-c7tj4example.eu-west-1.rds.amazonaws.com")
    >>> (found.kind, found.name, found.region)
    ('reader', 'orders', 'eu-west-1')
    """
    normal = _plain(host)
    match = _ENDPOINT.fullmatch(normal)
    if match is None:
        return None
    return RdsEndpoint(
        host=normal,
        kind=_KIND_OF_PREFIX[match["prefix"]],
        name=match["name"],
        account=match["account"],
        region=match["before"] or match["behind"],
    )


def is_rds_endpoint(host: str) -> bool:
    """Return whether a host name belongs to Amazon RDS: an instance, a cluster, a proxy.

    >>> is_rds_endpoint("db1.c9akciq32.eu-west-1.rds.amazonaws.com"), is_rds_endpoint("rds.amazonaws.com.example.org")
    (True, False)
    """
    return _RDS.fullmatch(_plain(host)) is not None


def is_rds_proxy(host: str) -> bool:
    """Return whether a host name is an RDS Proxy's.

    >>> is_rds_proxy("pool.proxy-c9akciq32.eu-west-1.rds.amazonaws.com")
    True
    """
    found = parse_endpoint(host)
    return found is not None and found.kind == "proxy"


def region_of(host: str) -> str | None:
    """Return the AWS region in an endpoint's name, or None if it contains none.

    >>> region_of("db1.c9akciq32.rds.cn-north-1.amazonaws.com.cn"), region_of("db1.global-x1.global.rds.amazonaws.com")
    ('cn-north-1', None)
    """
    found = _RDS.fullmatch(_plain(host))
    region = None if found is None else found["region"] or found["china"]
    return None if region == _NO_REGION else region


def _plain(host: str) -> str:
    return host.strip().rstrip(".").lower()
