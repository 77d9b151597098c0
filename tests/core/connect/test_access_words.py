"""What endpoints' names say, and the words for IAM."""

from __future__ import annotations

import json

import pytest

from penstock.core.connect.endpoints import connect_policy, explain_refusal, is_rds_endpoint, region_of


@pytest.mark.parametrize(
    ("host", "is_amazons", "region"),
    [
        ("db1.c9akciq32.eu-west-1.rds.amazonaws.com", True, "eu-west-1"),
        ("DB1.C9akciq32.EU-WEST-1.rds.amazonaws.com.", True, "eu-west-1"),
        ("x.cluster-ro-c9akciq32.us-gov-west-1.rds.amazonaws.com", True, "us-gov-west-1"),
        ("db1.c9akciq32.cn-north-1.rds.amazonaws.com.cn", True, "cn-north-1"),
        ("db1.c9akciq32.rds.cn-northwest-1.amazonaws.com.cn", True, "cn-northwest-1"),
        ("rds.amazonaws.com", False, None),
        ("db1.eu-west-1.rds.amazonaws.com.example.org", False, None),
        ("db1.eu-west-1.myrds.amazonaws.com", False, None),
        ("10.0.0.5", False, None),
        ("", False, None),
    ],
)
def test_endpoint_tells_region(host: str, is_amazons: bool, region: str | None) -> None:
    """Amazon's endpoints are known by the end of their names, whatever their letters' case."""
    assert (is_rds_endpoint(host), region_of(host)) == (is_amazons, region)


def test_policy_is_json_with_the_arn() -> None:
    """It can be pasted; a proxy's resource is another than an instance's, and so is China's partition."""
    policy = json.loads(connect_policy(host="p.proxy-1x.cn-north-1.rds.amazonaws.com.cn", user="loader"))
    (statement,) = policy["Statement"]
    assert statement["Action"] == "rds-db:connect"
    assert statement["Resource"] == "arn:aws-cn:rds-db:cn-north-1:ACCOUNT:dbuser:PROXY_RESOURCE_ID/loader"


def test_refusal_names_what_to_check() -> None:
    """Role, policy, clock, TLS, endpoint."""
    words = explain_refusal(host="db1.x.eu-west-1.rds.amazonaws.com", user="loader", now="2026-01-01T00:00:00")
    for part in ('GRANT rds_iam TO "loader";', "rds-db:connect", "2026-01-01T00:00:00", "sslmode", "tunnel"):
        assert part in words
