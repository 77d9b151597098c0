"""What the name of a server's endpoint says: whether it is Amazon's, of which kind, in which region. Pure.

Forms: docs.aws.amazon.com/AmazonRDS/latest/UserGuide, "Finding the connection information", and its Aurora and RDS
Proxy counterparts; China has names of the form rds.REGION.amazonaws.com.cn as well.
"""

from __future__ import annotations

import re

_RDS = re.compile(
    r".+\.(?:(?P<region>[a-z0-9-]+)\.rds\.amazonaws\.com(?:\.cn)?|rds\.(?P<china>cn-[a-z0-9-]+)\.amazonaws\.com\.cn)"
)
_PROXY = re.compile(r"\.proxy-[a-z0-9]+\.")

# The endpoint of an Aurora global database belongs to no region.
_NO_REGION = "global"


def is_rds_endpoint(host: str) -> bool:
    """Return whether a host name is one of Amazon RDS: an instance, a cluster, a proxy.

    >>> is_rds_endpoint("db1.c9akciq32.eu-west-1.rds.amazonaws.com"), is_rds_endpoint("rds.amazonaws.com.example.org")
    (True, False)
    """
    return _RDS.fullmatch(_plain(host)) is not None


def is_rds_proxy(host: str) -> bool:
    """Return whether a host name is an RDS Proxy's.

    >>> is_rds_proxy("pool.proxy-c9akciq32.eu-west-1.rds.amazonaws.com")
    True
    """
    return is_rds_endpoint(host) and _PROXY.search(_plain(host)) is not None


def region_of(host: str) -> str | None:
    """Return the AWS region in an endpoint's name, or None where it names none.

    >>> region_of("db1.c9akciq32.rds.cn-north-1.amazonaws.com.cn"), region_of("db1.global-x1.global.rds.amazonaws.com")
    ('cn-north-1', None)
    """
    found = _RDS.fullmatch(_plain(host))
    region = None if found is None else found["region"] or found["china"]
    return None if region == _NO_REGION else region


def _plain(host: str) -> str:
    return host.rstrip(".").lower()
