"""What obstore's errors are taken for, and how long to wait after them."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError

from penstock.core.errors import CredentialsError, SourceError
from penstock.loading.files.stores import Stores, describe_failure, retry_delay_s, source_error


def test_status_code_and_store_code_are_told_without_the_url() -> None:
    """The status, its reason and S3's code are shown; the signed URL is not."""
    exc = PermissionDeniedError(
        "GET https://b/k?X-Amz-Signature=secret in 1ms - Server returned non-2xx status code: "
        "403 Forbidden: <Error><Code>ExpiredToken</Code></Error>"
    )
    error = source_error("s3://b/k", exc)
    assert error.message == 'not allowed to read "s3://b/k"'
    assert error.detail == "The server answered HTTP status 403 Forbidden (ExpiredToken)."
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("text", "is_transient"),
    [
        ("status code: 503 Service Unavailable", True),
        ("status code: 429 Too Many Requests", True),
        ("status code: 400 Bad Request", False),
        ("kind: Connect", True),
        ("kind: Interrupted", True),
        ("Received redirect without LOCATION", False),
        ("Content-Length Header missing from response", False),
        ("invalid peer certificate: UnknownIssuer", False),
    ],
)
def test_only_passing_faults_are_tried_again(text: str, *, is_transient: bool) -> None:
    """Lost connections and overloaded servers pass; the rest fails at once."""
    assert describe_failure(GenericError(text)).is_transient is is_transient


@pytest.mark.parametrize(
    ("uri", "text", "is_login"),
    [
        ("s3://b/k", "status code: 400 Bad Request: <Error><Code>ExpiredToken</Code></Error>", True),
        ("s3://b/k", "status code: 400 Bad Request", True),
        ("s3://b/k", "status code: 400 Bad Request: <Error><Code>KeyTooLongError</Code></Error>", False),
        ("s3://b/k", "status code: 403 Forbidden: <Error><Code>InvalidAccessKeyId</Code></Error>", True),
        ("s3://b/k", "status code: 403 Forbidden: <Error><Code>AccessDenied</Code></Error>", False),
        ("gs://b/k", "Error performing token request: ... status code: 404 Not Found", True),
        ("https://b/k", "status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code></Error>", False),
        ("https://b/k", "status code: 401 Unauthorized", False),
    ],
)
def test_credentials_that_are_not_valid_say_nothing_of_an_object(uri: str, text: str, *, is_login: bool) -> None:
    """So that --on-error reject leaves out no object for them: a table would be replaced by a part of its files."""
    error = source_error(uri, GenericError(text))
    assert (isinstance(error, CredentialsError), error.is_unreadable) == (is_login, not is_login)


def test_failed_credentials_are_told() -> None:
    """The credential source's own words reach the user."""
    exc = UnauthenticatedError("... for path External AWS credential provider: RuntimeError: session ended\n")
    assert "session ended" in describe_failure(exc).words


def test_token_request_is_no_answer_about_the_object() -> None:
    """A metadata service that refuses a token is not a server that refuses the object."""
    exc = GenericError("Generic GCS error: Error performing token request: ... status code: 404 Not Found")
    assert describe_failure(exc).words == "No credentials could be obtained."


def test_incomplete_configuration_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure without an account's name says what is missing, and where to set it."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(SourceError, match='could not reach "az://box"') as caught:
        Stores(None).find("az://box/a.csv")
    assert "Account must be specified" in (caught.value.detail or "")


def test_waits_double_and_end() -> None:
    """Each failure doubles the wait, of which the jitter takes up to half; the ninth is the last."""
    assert [retry_delay_s(count, jitter=0.0) for count in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert retry_delay_s(1, jitter=0.999) == pytest.approx(0.2, rel=0.01)
    assert retry_delay_s(9, jitter=0.5) is None
