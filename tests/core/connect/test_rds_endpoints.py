"""Host names of RDS and Aurora, and those that only look like it."""

from __future__ import annotations

import pytest

from penstock.core.connect.endpoints import parse_endpoint


@pytest.mark.parametrize(
    ("host", "kind", "name", "region"),
    [
        ("orders.c7tj4example.eu-west-1.rds.amazonaws.com", "instance", "orders", "eu-west-1"),
        ("Orders-2.C7tj4example.us-gov-west-1.rds.amazonaws.com.", "instance", "orders-2", "us-gov-west-1"),
        ("shop.cluster-c7tj4example.eu-west-1.rds.amazonaws.com", "writer", "shop", "eu-west-1"),
        ("shop.cluster-ro-c7tj4example.eu-west-1.rds.amazonaws.com", "reader", "shop", "eu-west-1"),
        ("reports.cluster-custom-c7tj4example.eu-west-1.rds.amazonaws.com", "custom", "reports", "eu-west-1"),
        ("shop.cluster-c7tj4example.rds.cn-north-1.amazonaws.com.cn", "writer", "shop", "cn-north-1"),
        ("shop.c7tj4example.cn-northwest-1.rds.amazonaws.com.cn", "instance", "shop", "cn-northwest-1"),
        ("pool.proxy-c7tj4example.eu-west-1.rds.amazonaws.com", "proxy", "pool", "eu-west-1"),
        ("ro.endpoint.proxy-c7tj4example.eu-west-1.rds.amazonaws.com", "proxy", "ro", "eu-west-1"),
        ("world.global-c7tj4example.global.rds.amazonaws.com", "global", "world", "global"),
    ],
)
def test_endpoint_is_taken_apart(host: str, kind: str, name: str, region: str) -> None:
    """Kind, name and region are all in it."""
    found = parse_endpoint(host)
    assert found is not None
    assert (found.kind, found.name, found.account, found.region) == (kind, name, "c7tj4example", region)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "10.0.0.5",
        "/var/run/postgresql",
        "rds.eu-west-1.amazonaws.com",
        "orders.eu-west-1.rds.amazonaws.com",
        "orders.c7tj4example.eu-west-1.rds.amazonaws.com.example.org",
        "orders.c7tj4example.eu-west-1.rds.amazonaws.org",
        "orders.c7tj4example.eu-west-1.docdb.amazonaws.com",
        "a b.c7tj4example.eu-west-1.rds.amazonaws.com",
    ],
)
def test_other_host_names_are_none(host: str) -> None:
    """The service's own address, look-alikes and everything else."""
    assert parse_endpoint(host) is None
