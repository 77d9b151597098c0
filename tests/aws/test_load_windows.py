"""A load whose duration is expected and the windows of RDS: asked of AWS once, and not waited for long."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from cli.conftest import Finished, run_process
from penstock.aws.quick import ask_windows
from penstock.cli.main import main
from penstock.errors import AwsError
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, cluster, instance, member

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.aws.clients import AwsClients
    from penstock.model.rds import RdsDescription

# What a test waits for at most; nothing here is to take so long.
PATIENCE_S = 60.0

HOST = f"orders.{ACCOUNT}.{REGION}.rds.amazonaws.com"


@pytest.fixture
def load(reach: Callable[..., str], tmp_path: Path) -> Callable[..., Finished]:
    """Provide a function (*arguments) that loads a small file into the endpoint orders."""
    source = tmp_path / "orders.csv"
    source.write_text("a,b\n1,x\n")
    conninfo = reach()

    def run(*arguments: str) -> Finished:
        return run_process("load", str(source), "--into", "orders", "--to", conninfo, *arguments)

    return run


def ask(aws: FakeAws, host: str = HOST) -> RdsDescription | AwsError:
    return ask_windows(host, now=NOW, patience_s=PATIENCE_S, make_clients=aws.make_clients)


def test_load_that_would_meet_a_window_is_refused(load: Callable[..., Finished]) -> None:
    """Until it is told to begin all the same; in eight days every window comes."""
    refused = load("--expect", "8d")
    assert refused.code == 6
    assert "would meet a" in refused.err
    assert "window of instance orders: " in refused.err
    assert "--ignore-windows" in refused.err
    done = load("--expect", "8d", "--ignore-windows", "--json")
    assert (done.code, done.object["rows"]) == (0, 1), done.err


def test_plan_shows_the_window_and_exits_as_one_that_would_not_load(load: Callable[..., Finished]) -> None:
    """As for a disk that would be filled."""
    shown = load("--plan", "--expect", "8d")
    assert shown.code == 9
    assert "warning: a load of 192 h 00 min that begins now would meet a" in shown.out
    described = load("--plan", "--expect", "8d", "--ignore-windows", "--json")
    assert described.code == 0
    assert "window of instance orders" in described.object["windows"]["detail"]


def test_aws_that_does_not_tell_is_a_warning(load: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the load begins."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    done = load("--expect", "8d")
    assert done.code == 0, done.err
    assert "warning: whether the load meets a window is not known" in done.err
    assert "there are no AWS credentials" in done.err


def test_load_without_an_expected_duration_asks_nothing(
    load: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it wait."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "no URL at all")
    done = load()
    assert done.code == 0, done.err
    assert "window" not in done.err


def test_windows_of_other_servers_are_not_asked_for(
    clean_aws: pytest.MonkeyPatch, database18: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They have none."""
    clean_aws.setenv("AWS_ENDPOINT_URL", "no URL at all")
    (tmp_path / "t.csv").write_text("a\n1\n")
    arguments = ["load", str(tmp_path / "t.csv"), "--into", "t", "--create", "--to", database18, "--expect", "8d"]
    assert main(arguments) == 0
    assert "window" not in capfd.readouterr().err


def test_override_needs_what_it_overrides(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a duration no window is looked at."""
    assert main(["load", "x.csv", "--into", "t", "--ignore-windows"]) == 2
    assert "--ignore-windows needs --expect" in capfd.readouterr().err


def test_one_call_tells_an_instances_windows() -> None:
    """Two, for one in a cluster."""
    aws = FakeAws(instances=[instance("orders")])
    found = ask(aws)
    assert not isinstance(found, AwsError)
    assert len(found.windows) == 2
    assert [operation for operation, _ in aws.asked] == ["DescribeDBInstances"]
    shop = FakeAws(instances=[member("shop-1", "shop")], clusters=[cluster("shop", ["shop-1"])])
    assert not isinstance(ask(shop, f"shop.cluster-{ACCOUNT}.{REGION}.rds.amazonaws.com"), AwsError)
    assert sorted(operation for operation, _ in shop.asked) == ["DescribeDBClusters", "DescribeDBInstances"]


def test_refusal_is_an_answer() -> None:
    """It is AWS's own."""
    found = ask(FakeAws(denied={"DescribeDBInstances": "not for you"}))
    assert isinstance(found, AwsError)
    assert found.detail == "AccessDenied: not for you."


def test_nobody_is_asked_for_the_code_of_a_device(clean_aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A load would hang."""
    (tmp_path / "config").write_text("[default]\nrole_arn = r\nsource_profile = base\nmfa_serial = m\n[profile base]\n")
    found = ask_windows(HOST, now=NOW, patience_s=PATIENCE_S)
    assert isinstance(found, AwsError)
    assert "code of a device" in found.message


def test_answer_that_does_not_come_is_not_waited_for() -> None:
    """Credentials may come from a program that hangs."""
    released = threading.Event()

    def hang(**_: object) -> AwsClients:
        released.wait(PATIENCE_S)
        raise AwsError("too late")

    found = ask_windows(HOST, now=NOW, patience_s=0.01, make_clients=hang)
    released.set()
    assert isinstance(found, AwsError)
    assert found.message == "AWS did not answer within 0.01 s"
