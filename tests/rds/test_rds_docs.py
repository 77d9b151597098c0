"""docs/rds.md shows what is printed, and its IAM policy allows what is asked and nothing else."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.main import main
from penstock.rds.describe import describe_instance
from penstock.rds.metrics import read_late_points
from penstock.rds.options import read_storage_options
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, cluster, instance, member

if TYPE_CHECKING:
    import pytest

    from rds.conftest import MotoRds

_PAGE = (Path(__file__).parents[2] / "docs" / "rds.md").read_text(encoding="utf-8")


def _block(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```", _PAGE, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


def test_transcript_is_what_moto_answers(moto_rds: MotoRds, capfd: pytest.CaptureFixture[str]) -> None:
    """Word for word, but for the security group, whose id moto draws."""
    command, _, expected = _block("text").partition("\n")
    _, program, *arguments = shlex.split(command)
    assert program == "penstock"
    assert main(arguments) == 0
    assert re.sub(r"sg-\w+", "sg-9a166a802f5ac1e62", capfd.readouterr().out) == expected


def test_policy_allows_what_is_asked_and_nothing_else() -> None:
    """An instance, a cluster and a custom endpoint need all of it."""
    host = f"reports.cluster-custom-{ACCOUNT}.{REGION}.rds.amazonaws.com"
    custom = {
        "DBClusterEndpointIdentifier": "reports",
        "DBClusterIdentifier": "shop",
        "Endpoint": host,
        "CustomEndpointType": "ANY",
    }
    aws = FakeAws(
        instances=[
            instance("orders", PerformanceInsightsEnabled=True, VpcSecurityGroups=[{"VpcSecurityGroupId": "sg-1"}]),
            member("shop-1", "shop"),
        ],
        clusters=[cluster("shop", ["shop-1"])],
        custom_endpoints=[custom],
        options={"orders": []},
    )
    for wanted in ("orders", host):
        describe_instance(wanted, now=NOW, make_clients=aws.make_clients)
    watched = f"orders.{ACCOUNT}.{REGION}.rds.amazonaws.com"
    read_late_points(watched, since=NOW - timedelta(minutes=5), now=NOW, make_clients=aws.make_clients)
    read_storage_options("orders", make_clients=aws.make_clients)
    statements = json.loads(_block("json"))["Statement"]
    allowed = {action.partition(":")[2] for statement in statements for action in statement["Action"]}
    assert allowed == {operation for operation, _ in aws.asked}
