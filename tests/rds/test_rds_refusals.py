"""What AWS refuses over HTTP: throttled calls are asked again, denied ones leave gaps.

moto's server refuses nobody. Grumbler is a fake before it that answers, for the operations that a test names, as RDS
does; it differs from AWS in that it refuses by count and by operation, whoever asks.
"""

from __future__ import annotations

import threading
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.aws.token import RdsTokens
from penstock.core.errors import AwsError, ServerError, SourceError
from penstock.rds.clients import AwsClients
from penstock.rds.describe import describe_instance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rds.conftest import MotoRds

_REFUSAL = """<ErrorResponse xmlns="http://rds.amazonaws.com/doc/2014-10-31/">
<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId>
</ErrorResponse>"""

# What RDS answers to a wrong signature, shortened: the text goes on with all that was to be signed.
_WRONG_SIGNATURE = (
    "The request signature we calculated does not match the signature you provided.\n\n"
    "The Canonical String for this request should have been\n'POST\n/\n\nx-amz-security-token:planted-token\n'"
)


_HOST = "orders.c7tj4example.eu-west-1.rds.amazonaws.com"

_ROLE = """[default]
region = eu-west-1
role_arn = arn:aws:iam::111122223333:role/loader
source_profile = ann
[profile ann]
aws_access_key_id = AKIAEXAMPLE
aws_secret_access_key = planted-secret-key
"""


@dataclass
class Grumbler:
    """`throttled` counts down for each operation; `denied` refuses it always. `asked` is what came."""

    url: str = ""
    throttled: dict[str, int] = field(default_factory=dict)
    denied: dict[str, tuple[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def grumbler(moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch) -> Iterator[Grumbler]:
    """Provide the fake, and have RDS asked through it."""
    state = Grumbler()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Keep quiet."""

        def do_POST(self) -> None:
            """Refuse, or pass on."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            (operation,) = parse_qs(body.decode())["Action"]
            with lock:
                state.asked.append(operation)
                is_throttled = state.throttled.get(operation, 0) > 0
                if is_throttled:
                    state.throttled[operation] -= 1
            if is_throttled:
                self._answer(400, _REFUSAL.format(code="Throttling", message="Rate exceeded").encode())
            elif operation in state.denied:
                code, message = state.denied[operation]
                self._answer(403, _REFUSAL.format(code=code, message=message).encode())
            else:
                headers = {name: self.headers[name] for name in ("Authorization", "Content-Type", "X-Amz-Date")}
                request = urllib.request.Request(moto_rds.url, data=body, headers=headers)  # noqa: S310 (moto's own)
                with urllib.request.urlopen(request) as answer:  # noqa: S310 (moto's own)
                    self._answer(200, answer.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    # moto does not know this call
    state.denied["DescribePendingMaintenanceActions"] = ("AccessDenied", "User: ann is not authorized")
    monkeypatch.setenv("AWS_ENDPOINT_URL_RDS", state.url)
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.part("rest")
def test_throttled_call_is_asked_again(grumbler: Grumbler, moto_rds: MotoRds) -> None:
    """Botocore waits a moment before it does."""
    describe_instance(moto_rds.instance, now=datetime.now(UTC))
    asked = grumbler.asked.count("DescribeDBInstances")
    grumbler.throttled["DescribeDBInstances"] = 1
    found = describe_instance(moto_rds.instance, now=datetime.now(UTC))
    assert found.instance is not None
    assert grumbler.asked.count("DescribeDBInstances") == 2 * asked + 1


def test_quick_question_is_asked_once(grumbler: Grumbler, moto_rds: MotoRds) -> None:
    """Where nobody is to wait, a refusal counts."""
    grumbler.throttled["DescribeDBInstances"] = 1
    with pytest.raises(AwsError, match="AWS refused or did not answer rds:DescribeDBInstances"):
        describe_instance(
            moto_rds.instance,
            now=datetime.now(UTC),
            make_clients=lambda **given: AwsClients(**given, timeout_s=30),
        )
    assert grumbler.asked == ["DescribeDBInstances"]


@pytest.mark.part("rest")
def test_denied_call_keeps_the_reason(grumbler: Grumbler, moto_rds: MotoRds) -> None:
    """And is not asked again."""
    found = describe_instance(moto_rds.instance, now=datetime.now(UTC))
    assert [(gap.call, gap.reason) for gap in found.gaps] == [
        ("rds:DescribePendingMaintenanceActions", "AccessDenied: User: ann is not authorized")
    ]
    assert grumbler.asked.count("DescribePendingMaintenanceActions") == 1


def test_wrong_signature_does_not_print_the_token(grumbler: Grumbler, moto_rds: MotoRds) -> None:
    """AWS sends back what was to be signed."""
    grumbler.denied["DescribeDBInstances"] = ("SignatureDoesNotMatch", _WRONG_SIGNATURE)
    with pytest.raises(AwsError) as caught:
        describe_instance(moto_rds.instance, now=datetime.now(UTC))
    assert "planted-token" not in str(caught.value)
    assert caught.value.detail == (
        "SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided."
    )


def _obtain_both() -> list[str]:
    """Ask for a token, and for S3's credentials; return both errors."""
    errors = []
    for obtain in (lambda: RdsTokens()(host=_HOST, port=5432, user="ann"), AwsCredentials().s3_credentials):
        with pytest.raises((ServerError, SourceError)) as caught:
            obtain()
        errors.append(str(caught.value))
    return errors


@pytest.mark.part("rest")
def test_role_that_may_not_be_taken_is_told(
    grumbler: Grumbler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the words of AWS's security service, without what was to be signed."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", grumbler.url)
    (tmp_path / "config").write_text(_ROLE)
    grumbler.denied["AssumeRole"] = ("AccessDenied", "ann may not take it")
    assert all("AccessDenied: ann may not take it" in error for error in _obtain_both())
    grumbler.denied["AssumeRole"] = ("SignatureDoesNotMatch", _WRONG_SIGNATURE)
    assert not any("planted-token" in error for error in _obtain_both())


@pytest.mark.parametrize("program", ["/nowhere/to/be/found", "/bin/echo nonsense"])
def test_credential_program_that_fails_is_told_for_tokens_and_s3(
    clean_aws: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    """One that is missing, and one that gives something else."""
    (tmp_path / "config").write_text(f"[default]\nregion = eu-west-1\ncredential_process = {program}\n")
    assert all("could not" in error for error in _obtain_both())


def test_endpoint_that_is_no_url_is_told(moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a traceback."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_RDS", "not a url")
    with pytest.raises(AwsError, match="could not set up a client of AWS's rds"):
        describe_instance(moto_rds.instance, now=datetime.now(UTC))


def test_credential_program_that_is_missing_is_told(
    moto_rds: MotoRds, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Botocore lets the system's own error through."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {tmp_path}/missing\n")
    with pytest.raises(AwsError, match="could not obtain AWS credentials"):
        describe_instance(moto_rds.instance, now=datetime.now(UTC))
