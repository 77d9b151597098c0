"""`penstock doctor` of an endpoint of RDS: the server is an embedded one behind TLS, AWS is moto's server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.cli.main import main
from support.command import Finished, run_process
from support.screens import hold

if TYPE_CHECKING:
    from collections.abc import Callable

    from rds.conftest import MotoRds

pytestmark = pytest.mark.part("rest")


@pytest.fixture
def doctor(reach: Callable[..., str]) -> Callable[..., Finished]:
    """Provide a function (*arguments, host=) that runs doctor against the endpoint orders, or another name."""

    def run(*arguments: str, **given: str) -> Finished:
        return run_process("doctor", "--to", reach(**given), *arguments)

    return run


@pytest.mark.part("main")
def test_screen_has_what_aws_says(doctor: Callable[..., Finished]) -> None:
    """As docs/doctor.md shows it."""
    shown = doctor()
    assert shown.code == 0, shown.err
    hold("rds", shown.out)


def test_object_has_what_aws_says(doctor: Callable[..., Finished]) -> None:
    """As penstock rds show has it."""
    shown = doctor("--json")
    assert shown.object["rds"]["instance"]["identifier"] == "orders"
    assert "planted-secret" not in shown.out


def test_load_is_judged_by_storage_and_route(
    doctor: Callable[..., Finished], moto_rds: MotoRds, clean_aws: pytest.MonkeyPatch
) -> None:
    """Free storage is CloudWatch's, S3 has the same endpoint."""
    s3 = boto3.client("s3", region_name="us-east-1", endpoint_url=moto_rds.url)
    s3.create_bucket(Bucket="landing")
    s3.put_object(Bucket="landing", Key="orders.csv", Body=b"a,b\n" + b"1,x\n" * 1000)
    s3.close()
    shown = doctor("--into", "orders", "--for", "s3://landing/orders.csv", "--json")
    assert shown.code == 0, shown.err
    findings = shown.object["findings"]
    (disk,) = [finding["claim"] for finding in findings if finding["code"] == "disks"]
    assert "of 335 GB free" in disk
    assert disk.startswith("the storage of orders: ")
    (route,) = [finding["claim"] for finding in findings if finding["code"] == "sources"]
    assert route == (f"s3://landing is reached from here: 1 object, by the endpoint {moto_rds.url} in region us-east-1")
    assert shown.object["plan"]["steps"]["space"]["disks"][0]["device"] == "the storage of orders"


def test_tunnel_leads_to_the_endpoint_that_aws_is_asked_of(reach: Callable[..., str]) -> None:
    """The name stays in --to."""
    given = conninfo_to_dict(reach())
    port = given.pop("port")
    del given["hostaddr"]
    shown = run_process("doctor", "--to", make_conninfo(**given), "--tunnel", f"localhost:{port}", "--json")
    assert shown.code == 0, shown.err
    assert shown.object["rds"]["instance"]["identifier"] == "orders"


def test_iam_authentication_that_is_on_is_told(reach: Callable[..., str]) -> None:
    """With --iam-auth."""
    shown = run_process("doctor", "--to", reach(admit=lambda *_: None), "--iam-auth", "--json")
    assert shown.code == 0, shown.err
    assert "IAM authentication of orders is on" in [finding["claim"] for finding in shown.object["findings"]]


def test_refused_token_is_explained_where_iam_authentication_is_off(
    reach: Callable[..., str], moto_rds: MotoRds
) -> None:
    """The server takes the token for a wrong password, and says no more; AWS knows."""
    conninfo = reach(host=moto_rds.writer, admit=lambda *_: 'password authentication failed for user "postgres"')
    shown = run_process("doctor", "--to", conninfo, "--iam-auth")
    assert shown.code == 7
    assert "IAM authentication of shop is off: its tokens are no passwords there" in shown.err
    assert "aws rds modify-db-cluster --db-cluster-identifier shop --enable-iam-database-authentication" in shown.err


def test_aws_that_cannot_be_asked_is_a_note(
    doctor: Callable[..., Finished], monkeypatch: pytest.MonkeyPatch, moto_rds: MotoRds
) -> None:
    """No such instance in this account, no credentials: a load would go all the same."""
    missing = doctor("--json", host=moto_rds.instance.replace("orders.", "gone."))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    unknown = doctor("--json")
    assert (missing.code, unknown.code) == (0, 0), missing.err + unknown.err
    said = [
        [(finding["severity"], finding["claim"]) for finding in shown.object["findings"] if finding["code"] == "AWS"]
        for shown in (missing, unknown)
    ]
    assert said[0] == [("note", 'this AWS account has no instance "gone" in eu-west-1')]
    assert said[1] == [("note", "no AWS credentials were found")]
    assert unknown.object["rds"] is None


def test_other_hosts_are_not_asked_about(
    clean_aws: pytest.MonkeyPatch, database18: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is said of AWS, whatever is configured."""
    clean_aws.setenv("AWS_ENDPOINT_URL", "no URL at all")
    assert main(["doctor", "--to", database18]) == 0
    assert "AWS" not in capfd.readouterr().out
