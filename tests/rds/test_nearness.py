"""Where this host is, seen from an instance: its zone, and what the instance's security groups say of it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from penstock.rds.describe import HostPlace, describe_instance, find_host_address, judge_nearness, read_host_place
from penstock.rds.view import describe_lines
from support.fake_aws import NOW, FakeAws, instance

if TYPE_CHECKING:
    from collections.abc import Iterator


def rule(network: str, *, port: int = 5432, protocol: str = "tcp") -> dict[str, Any]:
    """Return a rule of a security group as DescribeSecurityGroups has it."""
    ports = {} if protocol == "-1" else {"FromPort": port, "ToPort": port}
    return {"IpProtocol": protocol, **ports, "IpRanges": [{"CidrIp": network}], "UserIdGroupPairs": []}


OF_GROUP = {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "UserIdGroupPairs": [{"GroupId": "sg-2"}]}


@pytest.mark.parametrize(
    ("rules", "address", "is_admitted"),
    [
        ([rule("10.0.0.0/16")], "10.0.3.4", True),
        ([rule("0.0.0.0/0", protocol="-1")], "10.0.3.4", True),
        (
            [{"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "Ipv6Ranges": [{"CidrIpv6": "fd00::/8"}]}],
            "fd00::1",
            True,
        ),
        ([rule("10.0.0.0/16")], "fd00::1", False),
        ([rule("10.0.0.0/16", port=5433)], "10.0.3.4", False),
        ([rule("10.0.0.0/16", protocol="udp")], "10.0.3.4", False),
        ([rule("10.1.0.0/16")], "10.0.3.4", False),
        ([], "10.0.3.4", False),
        ([rule("10.1.0.0/16"), OF_GROUP], "10.0.3.4", None),
        ([rule("10.0.0.0/16")], None, None),
        (None, "10.0.3.4", None),
    ],
)
def test_rules_of_security_groups_admit_an_address(
    rules: list[dict[str, Any]] | None, address: str | None, is_admitted: bool | None
) -> None:
    """Rules for another port, protocol or network do not admit the address.

    A rule that names another group leaves it unknown.
    """
    groups = None if rules is None else [{"GroupId": "sg-1", "IpPermissions": rules}]
    raw = instance("orders", VpcSecurityGroups=[{"VpcSecurityGroupId": "sg-1"}])
    found = judge_nearness(raw, groups, host=HostPlace(), host_address=address)
    assert (found.security_groups, found.is_host_admitted) == (("sg-1",), is_admitted)


@pytest.mark.parametrize(
    ("rules", "own", "address", "is_admitted", "reason", "source"),
    [
        ([OF_GROUP], ("sg-9", "sg-2"), "10.0.3.4", True, "a rule of sg-1 names sg-2, which this host is in", None),
        ([OF_GROUP], (), "10.0.3.4", None, "rules name sg-2; name this host's groups with --security-group", None),
        (
            [OF_GROUP],
            ("sg-9",),
            "10.0.3.4",
            False,
            "no rule for port 5432 contains 10.0.3.4 or names its groups",
            "--source-group sg-9",
        ),
        # A group admits private addresses alone.
        ([OF_GROUP], ("sg-2",), "8.8.8.8", False, "no rule for port 5432 contains 8.8.8.8 or names its groups", "8/32"),
        ([], (), "10.0.3.4", False, "no rule for port 5432 contains 10.0.3.4", "--cidr 10.0.3.4/32"),
        ([], (), "fd00::1", False, "no rule for port 5432 contains fd00::1", None),
        ([{**OF_GROUP, "PrefixListIds": [{"PrefixListId": "pl-1"}]}], ("sg-9",), "10.0.3.4", None, "rules name", None),
    ],
)
def test_rules_that_name_a_group_admit_its_hosts(
    rules: list[dict[str, Any]],
    own: tuple[str, ...],
    address: str,
    is_admitted: bool | None,
    reason: str,
    source: str | None,
) -> None:
    """By the host's own groups; where no rule is for the host, the command that adds one is shown."""
    raw = instance("orders", VpcSecurityGroups=[{"VpcSecurityGroupId": "sg-1"}])
    groups = [{"GroupId": "sg-1", "IpPermissions": rules}]
    found = judge_nearness(raw, groups, host=HostPlace(security_groups=own), host_address=address)
    assert found.is_host_admitted is is_admitted
    assert found.reason.startswith(reason)
    assert (found.command is None) is (source is None)
    if source is not None:
        assert found.command is not None
        assert found.command.startswith(
            "aws ec2 authorize-security-group-ingress --group-id sg-1 --protocol tcp --port"
        )
        assert found.command.endswith(source)


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    ("denied", "told"),
    [
        ({}, "sg-1; cannot tell if they admit this host: the address from which this host connects is not known"),
        ({"DescribeSecurityGroups": "no"}, "sg-1; cannot tell if they admit this host: the groups could not be read"),
    ],
)
def test_zone_and_groups_are_shown(
    denied: dict[str, str], told: str, clean_aws: pytest.MonkeyPatch, zone_service: str
) -> None:
    """The instance's name does not resolve here, so the address is not known."""
    clean_aws.delenv("AWS_EC2_METADATA_DISABLED")
    clean_aws.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", zone_service)
    raw = instance(
        "orders",
        AvailabilityZone="eu-west-1a",
        Endpoint={"Address": "orders.invalid", "Port": 5432},
        VpcSecurityGroups=[{"VpcSecurityGroupId": "sg-1", "Status": "active"}],
    )
    aws = FakeAws(instances=[raw], security_groups=[{"GroupId": "sg-1", "IpPermissions": []}], denied=denied)
    shown = describe_lines(describe_instance("orders", now=NOW, make_clients=aws.make_clients))
    assert "  zone                 eu-west-1a; this host is in eu-west-1b: what it sends crosses zones" in shown
    assert f"  security groups      {told}" in shown


@pytest.fixture
def zone_service() -> Iterator[str]:
    """Provide EC2's instance metadata, version 2: the zone is eu-west-1b for those who bring the token."""

    class Metadata(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert self.path == "/latest/api/token"
            self._answer(200, "token")

        def do_GET(self) -> None:
            answers = {
                "placement/availability-zone": "eu-west-1b",
                "mac": "0e:49:61:0f:c3:11",
                "network/interfaces/macs/0e:49:61:0f:c3:11/security-group-ids": "sg-2\nsg-3",
            }
            has_token = self.headers["X-aws-ec2-metadata-token"] == "token"
            self._answer(*((200, answers[self.path[18:]]) if has_token else (401, "")))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_metadata_have_the_zone_and_the_groups_of_the_host(clean_aws: pytest.MonkeyPatch, zone_service: str) -> None:
    """The groups are those of its first network interface."""
    clean_aws.delenv("AWS_EC2_METADATA_DISABLED")
    clean_aws.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", zone_service)
    assert read_host_place() == HostPlace(zone="eu-west-1b", security_groups=("sg-2", "sg-3"))


def test_host_outside_ec2_has_no_zone(clean_aws: pytest.MonkeyPatch) -> None:
    """Its metadata may be switched off, or nothing answers."""
    assert read_host_place() == HostPlace()
    clean_aws.delenv("AWS_EC2_METADATA_DISABLED")
    clean_aws.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    assert read_host_place() == HostPlace()


def test_address_of_this_host_is_the_one_it_connects_from() -> None:
    """The loopback's own; a name that does not resolve has none."""
    assert find_host_address("127.0.0.1", 5432) == "127.0.0.1"
    assert find_host_address("orders.invalid", 5432) is None
    assert find_host_address(None, 5432) is None
