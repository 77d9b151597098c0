"""CPUs and windows of the instance as AWS reports them. Asking never makes a load fail or wait."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import AwsError
from penstock.core.tuning import LoadTuning
from penstock.core.values.dialect import DialectOptions
from penstock.core.values.job import Housekeeping, LoadJob, TargetJob
from penstock.core.values.names import parse_table_name
from penstock.loading.imports.route import await_answer, begin_asking, class_of, find_near_windows
from penstock.loading.loader import Loader
from penstock.rds.clients import AwsClients
from penstock.rds.describe import BriefQuestion
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, cluster, instance, member
from support.files import write_to

if TYPE_CHECKING:
    from penstock.rds.values import RdsDescription
    from rds.conftest import MotoRds
    from support.servers import PgServer

# What a test waits for at most; nothing here is to take so long.
PATIENCE_S = 60.0


def endpoint(name: str, prefix: str = "") -> str:
    return f"{name}.{prefix}{ACCOUNT}.{REGION}.rds.amazonaws.com"


def describe(aws: FakeAws, host: str) -> RdsDescription | None:
    return BriefQuestion(host, now=NOW, patience_s=PATIENCE_S, make_clients=aws.make_clients).answer()


def ask(aws: FakeAws, host: str) -> str | None:
    found = describe(aws, host)
    if found is None or found.instance is None:
        return None
    return f"{found.instance.instance_class.name} {found.instance.instance_class.vcpu_count}"


def test_vcpus_are_those_of_the_class() -> None:
    """One call for an instance."""
    aws = FakeAws(instances=[instance("orders")])
    assert ask(aws, endpoint("orders")) == "db.r6g.2xlarge 8"
    assert [operation for operation, _ in aws.asked] == ["DescribeDBInstances"]


def test_clusters_are_asked_for_their_writer() -> None:
    """Which may be described by those who may describe its cluster."""
    aurora = FakeAws(
        instances=[member("shop-1", "shop", DBInstanceClass="db.r6g.large"), member("shop-2", "shop")],
        clusters=[cluster("shop", ["shop-1", "shop-2"])],
    )
    assert ask(aurora, endpoint("shop", "cluster-")) == "db.r6g.large 2"


def test_whatever_aws_refuses_is_no_error() -> None:
    """Denied, not there, another account's."""
    assert ask(FakeAws(denied={"DescribeDBInstances": "no"}), endpoint("orders")) is None
    assert ask(FakeAws(), endpoint("orders")) is None
    moved = instance("orders", Endpoint={"Address": "orders.other.eu-west-1.rds.amazonaws.com", "Port": 5432})
    assert ask(FakeAws(instances=[moved]), endpoint("orders")) is None


def test_answer_over_http(moto_rds: MotoRds) -> None:
    """With the environment's credentials."""
    found = BriefQuestion(moto_rds.instance, now=NOW, patience_s=PATIENCE_S).answer()
    assert found is not None
    assert found.instance is not None
    assert found.instance.instance_class.vcpu_count == 8
    assert len(found.windows) == 2


def test_no_credentials_are_no_error(moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads do without."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert BriefQuestion(endpoint("orders"), now=NOW, patience_s=PATIENCE_S).answer() is None


@pytest.mark.parametrize("profile", ["dba", "by-way-of-dba"])
def test_nobody_is_asked_for_the_code_of_a_device(
    moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str
) -> None:
    """A role that needs one would prompt in the middle of a load's start."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = s\n")
    (tmp_path / "config").write_text(
        "[profile dba]\nrole_arn = arn:aws:iam::111122223333:role/dba\nsource_profile = default\n"
        "mfa_serial = arn:aws:iam::111122223333:mfa/ann\nregion = eu-west-1\n"
        "[profile by-way-of-dba]\nrole_arn = arn:aws:iam::111122223333:role/loads\nsource_profile = dba\n"
        "region = eu-west-1\n"
    )
    monkeypatch.setenv("AWS_PROFILE", profile)
    assert AwsClients(region=REGION).has_prompt()
    # The real prompt would find no terminal here, and raise.
    assert BriefQuestion(moto_rds.instance, now=NOW, patience_s=PATIENCE_S).answer() is None


def test_answer_that_comes_too_late_is_not_waited_for() -> None:
    """Its thread is left alone, and does not keep the process."""
    may_end, began = threading.Event(), threading.Event()

    def hang(**_: Any) -> Any:
        began.set()
        may_end.wait(PATIENCE_S)
        raise AwsError("too late")

    try:
        question = BriefQuestion(endpoint("orders"), now=NOW, patience_s=0.01, make_clients=hang)
        said: list[str] = []
        assert await_answer(question, on_notice=said.append) is None
        assert "not known: AWS has not answered within" in said[0]
        assert began.wait(PATIENCE_S)
        (thread,) = (one for one in threading.enumerate() if one.name == "RDS instance")
        assert thread.daemon
    finally:
        may_end.set()
    thread.join(PATIENCE_S)


def test_plan_warns_of_a_window_that_is_near() -> None:
    """It says when the window begins."""
    aws = FakeAws(instances=[instance("orders", PreferredBackupWindow="13:30-14:00")])
    (notice,) = find_near_windows(describe(aws, endpoint("orders")), now=NOW)
    assert notice.code == "window"
    assert notice.message == "the backup window of instance orders begins at Sat 13:30 UTC, in 1 h 30 min"


@pytest.mark.part("rest")
def test_plan_asks_aws_about_the_host_it_connected_to(
    moto_rds: MotoRds, pg18: PgServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded server in the place of RDS: its host name is RDS's, and it does not count as local."""
    monkeypatch.setattr("penstock.core.catalogue.catalog.is_local_server", lambda **_: False)
    tuning, housekeeping = LoadTuning(least_asking_bytes=1), Housekeeping(aws_timeout=PATIENCE_S)
    if pg18.server is None:
        pytest.skip("needs a server that listens on 127.0.0.1")
    settings = conninfo_to_dict(pg18.over_tcp(pg18.fresh_database()))
    # libpq looks passwords up by the host's name.
    settings["password"] = Path(str(settings.pop("passfile"))).read_text().strip().rpartition(":")[2]
    to = make_conninfo("", **{**settings, "host": moto_rds.instance, "hostaddr": "127.0.0.1", "sslmode": "disable"})
    source = write_to(tmp_path / "t.csv", "a\n1\n")
    target = TargetJob(sources=(str(source),), into=parse_table_name("t"), dialect=DialectOptions(), create=True)
    with Loader(ConnectionFactory(to), housekeeping, tuning=tuning) as loader:
        plan = loader.plan(LoadJob(targets=(target,)))
        assert plan.sessions.reason == "db.m6gd.2xlarge has 8 vCPUs, 4 B to read"
        as_asked = loader.plan(LoadJob(targets=(target,), sessions=3))
        assert as_asked.sessions.reason == "as requested"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    said: list[str] = []
    with Loader(ConnectionFactory(to), housekeeping, tuning=tuning) as loader:
        plan = loader.plan(LoadJob(targets=(target,)), on_notice=said.append)
        assert plan.sessions.reason == "server's CPUs unknown, 4 B to read"
    assert any("the vCPUs and the windows of the instance are not known" in each for each in said)


@pytest.mark.parametrize(
    ("host", "is_worth", "patience_s"),
    [(endpoint("orders"), False, 5.0), ("db.example.com", True, 5.0), (endpoint("orders"), True, 0.0)],
)
def test_small_loads_and_other_hosts_ask_nothing(host: str, is_worth: bool, patience_s: float) -> None:
    """They start as before, and so does a load with --aws-timeout 0."""
    assert begin_asking(host, is_worth=is_worth, patience_s=patience_s) is None


def test_class_without_a_fixed_number_of_cpus_has_none() -> None:
    """No answer is no class."""
    assert class_of(None) is None
    assert find_near_windows(None) == []
    aws = FakeAws(instances=[instance("orders", DBInstanceClass="db.serverless")])
    found = class_of(describe(aws, endpoint("orders")))
    assert found is None or found.vcpu_count is None
