"""Connects to object stores and HTTP servers by obstore, explains obstore's errors, and decides which are retried.

Imported only if a source is remote. A CredentialSource gives S3's credentials, so this folder does not import botocore.
Google Cloud Storage and Azure use obstore's own credential chains (environment, files, instance metadata).
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from penstock.core.errors import CredentialsError, SourceError
from penstock.core.slotted import slotted
from penstock.core.values.source import is_http

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig, S3Config, S3Credential

# obstore's errors. obstore raises FileNotFoundError if an object does not exist, and a subclass of its BaseError
# otherwise.
STORE_ERRORS = (BaseError, FileNotFoundError)

# How long a connection may stay silent, how long connecting may take, and how long a whole request may take. After one
# of the first two times, the connection is closed and the request is repeated. The third time is long, because one
# request may read a whole object.
_READ_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=10)
_REQUEST_TIMEOUT = timedelta(days=7)

# How many requests in a row may fail, and the first wait after a failure. If no byte arrives, the waits between
# requests are 0.2, 0.4, ... 25.6 s, 51 s in total. This is longer than a throttled prefix or the failover of a load
# balancer takes, but short enough to report that a server is down.
_MAX_FAILURES = 9
_FIRST_DELAY_S = 0.2

# The HTTP statuses below 500 that are retried: 408 (Request Timeout) and 429 (Too Many Requests).
_TRANSIENT_STATUSES = frozenset({408, 429})


class CredentialSource(Protocol):
    """What provides S3's region, endpoint and credentials. core/aws implements it, so neither imports the other."""

    def s3_config(self) -> Mapping[str, str]:
        """Return the configured region and endpoint, with the keys `region` and `endpoint`.

        A key without a value is absent.
        """

    def s3_credentials(self) -> Callable[[], S3Credential] | None:
        """Return a function that returns the present credentials at each call, or None if requests are not signed."""


class Stores:
    """Keeps obstore's connection pools, one for each bucket or HTTP URL. Threads may share them."""

    def __init__(self, credentials: CredentialSource | None) -> None:
        self._credentials = credentials
        self._stores: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()

    def find(self, location: str) -> tuple[ObjectStore, str]:
        """Return obstore's store for `location`, and the object's path in that store.

        Raises SourceError if the URL is not valid or the configuration lacks something.
        """
        scheme, _, rest = location.partition("://")
        if scheme in ("http", "https"):
            root, path = location, ""
        else:
            bucket, _, path = rest.partition("/")
            root = f"{scheme}://{bucket}"
        with self._lock:
            if root not in self._stores:
                self._stores[root] = self._connect(root)
            return self._stores[root], path

    def _connect(self, root: str) -> ObjectStore:
        scheme, _, bucket = root.partition("://")
        # obstore must not retry: remote.py does, because it knows which bytes have arrived.
        retry: RetryConfig = {"max_retries": 0}
        if scheme in ("http", "https"):
            url, headers = split_userinfo(root)
            options = _client_options(allows_http=True, headers=headers)
            return _connect_http(url, options, retry)
        try:
            if scheme == "s3":
                return self._connect_s3(bucket, retry)
            connect = GCSStore if scheme == "gs" else AzureStore
            return connect(bucket, client_options=_client_options(), retry_config=retry)
        except (BaseError, ValueError) as exc:
            # The error says what the configuration lacks, such as an account.
            detail = str(exc).partition("\n")[0]
            raise CredentialsError(f'could not reach "{root}"', detail=detail, hint=_CONFIGURE[scheme]) from None

    def _connect_s3(self, bucket: str, retry: RetryConfig) -> ObjectStore:
        if self._credentials is None:
            return S3Store(bucket, client_options=_client_options(), retry_config=retry)
        given = self._credentials.s3_config()
        config: S3Config = {"virtual_hosted_style_request": False}
        if "region" in given:
            config["region"] = given["region"]
        endpoint = given.get("endpoint", "")
        if endpoint:
            config["aws_endpoint_url_s3"] = endpoint
        provider = self._credentials.s3_credentials()
        if provider is None:
            config["skip_signature"] = True
        options = _client_options(allows_http=endpoint.startswith("http://"))
        return S3Store(bucket, config=config, client_options=options, retry_config=retry, credential_provider=provider)


def _connect_http(url: str, options: ClientConfig, retry: RetryConfig) -> ObjectStore:
    try:
        return HTTPStore(url, client_options=options, retry_config=retry)
    except (BaseError, ValueError):
        shown = url.partition("?")[0].partition("#")[0]
        # No cause is attached, because it may quote the query string.
        raise SourceError(f'"{shown}" is not a valid URL', hint="Write https://host/path, spaces as %20.") from None


@slotted
class Failure:
    """A failed request: the HTTP status, None if no server answered, and a sentence that contains no secret."""

    status: int | None
    words: str
    is_transient: bool


def retry_delay_s(failures: int, *, jitter: float) -> float | None:
    """Return the seconds to wait after the given number of consecutive failures, or None if no retry follows.

    `jitter` is a random number in [0, 1). It spreads the retries of several requests.
    """
    if failures >= _MAX_FAILURES:
        return None
    # Half of the wait is random, so that the requests of one load do not all return at the same time.
    return _FIRST_DELAY_S * float(2 ** (failures - 1)) * (0.5 + jitter / 2)


def describe_failure(exc: Exception) -> Failure:
    """Return what an error of obstore says, without its URLs, which may be signed.

    obstore reports the status, the store's error code and the operating system's message only in the text of its error.
    """
    text = str(exc)
    if "Error performing token request" in text:
        return Failure(status=None, words="No credentials could be obtained.", is_transient=False)
    if match := re.search(r"status code: (\d{3})( [A-Za-z][A-Za-z -]*[A-Za-z])?", text):
        status = int(match[1])
        code = re.search(r"<Code>(\w+)</Code>", text)
        words = f"The server answered HTTP status {status}{match[2] or ''}{f' ({code[1]})' if code else ''}."
        return Failure(status=status, words=words, is_transient=status >= 500 or status in _TRANSIENT_STATUSES)
    if isinstance(exc, FileNotFoundError):
        return Failure(status=404, words="The server answered HTTP status 404 Not Found.", is_transient=False)
    if match := re.search(r"External AWS credential provider: (.*)", text):
        return Failure(status=None, words=f"No credentials could be obtained: {match[1]}", is_transient=False)
    for phrase, status_meant, words in _LASTING:
        if phrase in text:
            key = _KEY.search(text)
            named = words.replace("{key}", "A key" if key is None else f'Key "{key[1]}"')
            return Failure(status=status_meant, words=named, is_transient=False)
    return _describe_connection_failure(text)


def source_error(uri: str, exc: Exception) -> SourceError:
    """Return the error to raise for a failed request. `exc` is obstore's error."""
    failure = describe_failure(exc)
    message, hint = _MEANINGS.get(failure.status or 0, (None, None))
    if failure.words.startswith(("Key ", "A key ")):
        hint = "Rename the object, or name the other objects one by one."
    # A URL that is signed has its own signature.
    is_login = not is_http(uri) and _LOGIN.search(failure.words) is not None
    hint = hint or (_DENIED[1] if is_login else None)
    return (CredentialsError if is_login else SourceError)(
        message.format(uri=uri) if message else f'could not read "{uri}"',
        detail=failure.words,
        hint=hint,
        is_transient=failure.is_transient,
    )


# Matches failures that any object would have without other credentials. The codes are those of Amazon S3 ("Error
# responses") and of Azure Blob Storage. The answer to a HEAD request has no code: of an expired token it has only 400.
_LOGIN = re.compile(
    r"^No credentials could be obtained|HTTP status 401|HTTP status 400[^(]*$|\((ExpiredToken|InvalidToken"
    r"|TokenRefreshRequired|InvalidAccessKeyId|SignatureDoesNotMatch|RequestTimeTooSkewed|AuthenticationFailed)\)"
)

# Matches obstore's message about a key that it cannot represent as a path.
_KEY = re.compile(r'Path "(.*?)"(?: contained|: Encountered)', re.DOTALL)

# Errors that a retry would not correct: obstore's words, the HTTP status that they stand for, and penstock's words.
_LASTING = (
    ("Received redirect without LOCATION", 301, "The server answered HTTP status 301 Moved Permanently."),
    (
        "Content-Length Header missing",
        None,
        "The server does not report the object's size: download it, or pipe it in.",
    ),
    ("contained empty path segment", None, "{key} has an empty part, which is not supported."),
    ("illegal character sequence", None, '{key} has a part such as ".", which is not supported.'),
    ("invalid peer certificate", None, "The server's certificate is not valid."),
)
_CONFIGURE = {
    "s3": "Check the bucket's name, AWS_REGION and AWS_ENDPOINT_URL.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or another credential.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or GOOGLE_SKIP_SIGNATURE=true for a public bucket.",
}
_DENIED = (
    'not allowed to read "{uri}"',
    "Check the credentials and their permissions; a signed URL may have expired.",
)
_MEANINGS: dict[int, tuple[str | None, str | None]] = {
    301: ('could not read "{uri}"', "The bucket is in another region: set AWS_REGION to that."),
    401: _DENIED,
    403: _DENIED,
    404: ('"{uri}" does not exist', None),
    # Precondition failed, range not satisfiable
    412: ('"{uri}" changed while it was read', "Load it again when no process writes to it."),
    416: ('"{uri}" changed while it was read', "Load it again when no process writes to it."),
}


def _describe_connection_failure(text: str) -> Failure:
    kind = re.search(r"kind: (Connect|Timeout|Interrupted)", text)
    system = re.search(r'message: "([^"]{1,80})"', text)
    words = {
        "Connect": "The connection failed",
        "Timeout": "The server did not answer in time",
        "Interrupted": "The connection was lost",
    }.get(kind[1] if kind else "", "The request failed")
    if "dns error" in text:
        words = "The server's name could not be resolved"
    return Failure(status=None, words=f"{words}{f': {system[1]}' if system else ''}.", is_transient=True)


def _client_options(*, allows_http: bool = False, headers: dict[str, str] | None = None) -> ClientConfig:
    options: ClientConfig = {
        "timeout": _REQUEST_TIMEOUT,
        "read_timeout": _READ_TIMEOUT,
        "connect_timeout": _CONNECT_TIMEOUT,
        "user_agent": "penstock",
    }
    if allows_http:
        options["allow_http"] = True
    if headers:
        options["default_headers"] = headers
    return options


def split_userinfo(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without its user and password, and the HTTP header that sends them.

    obstore itself would drop them.
    """
    parts = urlsplit(url)
    userinfo, _, host = parts.netloc.rpartition("@")
    if not userinfo:
        return url, {}
    token = base64.b64encode(unquote(userinfo).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {token}"}
