"""Reads host names of Amazon RDS and Aurora (kind of endpoint, identifier, region), and grants for IAM. Pure."""

from __future__ import annotations

import json
import re
from typing import Literal

from penstock.core.slotted import slotted

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

# Matches the host names of endpoints. The region is before "rds" or, in China, after it. The suffixes are those of
# botocore's endpoints.json.
_ENDPOINT = re.compile(
    r"(?P<name>[a-z0-9-]+)\.(?:endpoint\.)?"
    r"(?P<prefix>cluster-ro-|cluster-custom-|cluster-|proxy-|global-|shardgrp-|)(?P<account>[a-z0-9]+)\."
    r"(?:(?P<before>[a-z0-9-]+)\.rds|rds\.(?P<behind>[a-z0-9-]+))\."
    r"(?:amazonaws\.com(?:\.cn)?|amazonaws\.eu|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)"
)

# Matches any host name of Amazon RDS, including kinds of endpoints that are not known here. A decision that is based on
# this pattern must be safe for an unknown kind.
_RDS = re.compile(
    r".+\.(?:(?P<region>[a-z0-9-]+)\.rds\.amazonaws\.com(?:\.cn)?|rds\.(?P<china>cn-[a-z0-9-]+)\.amazonaws\.com\.cn)"
)

# The endpoint of an Aurora global database has this word in place of a region.
_NO_REGION = "global"


@slotted
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
    """Return the parts of a host name of RDS or Aurora, or None for any other host name.

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
    """Return whether a host name is the endpoint of an RDS Proxy.

    >>> is_rds_proxy("pool.proxy-c9akciq32.eu-west-1.rds.amazonaws.com")
    True
    """
    found = parse_endpoint(host)
    return found is not None and found.kind == "proxy"


# Matches the endpoints of Aurora DSQL (its user guide, "Accessing Aurora DSQL").
_DSQL = re.compile(r"[a-z0-9-]+\.dsql(?:-[a-z0-9]+)?\.[a-z0-9-]+\.on\.aws")


def is_dsql_endpoint(host: str) -> bool:
    """Return whether a host name is the endpoint of a cluster of Aurora DSQL.

    >>> is_dsql_endpoint("foo0bar1baz2quux3quuux4.dsql.us-east-1.on.aws")
    True
    """
    return _DSQL.fullmatch(_plain(host)) is not None


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


# The placeholder in a policy for the AWS account, which is not in an endpoint's name.
_ACCOUNT = "ACCOUNT"


def connect_arn(*, host: str, user: str) -> str:
    """Return the ARN of a database user of RDS. An IAM policy must allow rds-db:connect on it.

    Parts that the host name does not contain, such as the account, are words in capitals that the reader must replace.

    >>> connect_arn(host="db1.c9akciq32.eu-west-1.rds.amazonaws.com", user="loader")
    'arn:aws:rds-db:eu-west-1:ACCOUNT:dbuser:DB_RESOURCE_ID/loader'
    """
    found = region_of(host) or "REGION"
    partition = "aws-cn" if found.startswith("cn-") else "aws-us-gov" if found.startswith("us-gov-") else "aws"
    # A proxy's id is the end of its ARN (prx-...), a cluster's begins with cluster-, an instance's with db-.
    resource = "PROXY_RESOURCE_ID" if is_rds_proxy(host) else "DB_RESOURCE_ID"
    return f"arn:{partition}:rds-db:{found}:{_ACCOUNT}:dbuser:{resource}/{user}"


def connect_policy(*, host: str, user: str) -> str:
    """Return the IAM policy, as JSON, that allows an AWS identity to connect as the database user."""
    statement = {
        "Effect": "Allow",
        "Action": "rds-db:connect",
        "Resource": connect_arn(host=host, user=user),
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def grant_rds_iam(user: str) -> str:
    """Return the statement that lets a role log in with IAM tokens.

    >>> grant_rds_iam('o"hara')
    'GRANT rds_iam TO "o""hara";'
    """
    quoted = user.replace('"', '""')
    return f'GRANT rds_iam TO "{quoted}";'


def explain_refusal(*, host: str, user: str, now: str) -> str:
    """Return a text that lists what to check if RDS refused a token. `now` is the time of this machine's clock."""
    return (
        "If the token was refused, check in this order:\n"
        "1. IAM database authentication is switched on for the server.\n"
        f"2. The role may use it; as a privileged user: {grant_rds_iam(user)}\n"
        "3. The AWS identity of this machine (aws sts get-caller-identity) has this policy, with the words in capitals "
        "replaced (DbiResourceId of aws rds describe-db-instances, DbClusterResourceId of describe-db-clusters):\n"
        f"   {connect_policy(host=host, user=user)}\n"
        f"4. This machine's clock is right: it says {now}, and a token is good for 15 minutes.\n"
        "5. Host and port are the endpoint's own, also through a tunnel, and sslmode is not disable."
    )
