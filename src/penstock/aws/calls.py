"""Calls of the AWS API, some of which may be denied: what is not told is kept as a gap, with the reason."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from penstock.errors import AwsError
from penstock.model.server.rds import Gap

if TYPE_CHECKING:
    from collections.abc import Callable

    # botocore makes its clients' classes at run time, so there is nothing to name.
    Clients: TypeAlias = Callable[[str], Any]

Raw: TypeAlias = dict[str, Any]

# How services spell that there is nothing of that name.
_NOT_FOUND = frozenset(
    {"DBInstanceNotFound", "DBInstanceNotFoundFault", "DBClusterNotFoundFault", "DBClusterEndpointNotFoundFault"}
)

# How services spell that a policy does not allow a call.
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})

# How services spell that they may do it a little later: botocore has asked again by then, for some seconds.
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "InvalidDBParameterGroupState"})

# As many as there are questions of which none needs another's answer.
_THREADS = 8


class Calls:
    """Asks AWS; threads may share it. `gaps` are the questions that got no answer.

    `clients` gives botocore's client of a service by its name. Operations are named as botocore's methods are.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self.gaps: list[Gap] = []

    def need(self, service: str, operation: str, key: str, **parameters: Any) -> list[Raw]:
        """Return what an operation lists, or nothing where there is nothing of that name. Raises AwsError."""
        client = self._clients(service)
        try:
            return _list(client, operation, key, parameters)
        except _failures() as exc:
            if read_code(exc) in _NOT_FOUND:
                return []
            raise _refusal(name_call(client, service, operation), exc) from exc

    def ask(self, service: str, operation: str, key: str, **parameters: Any) -> list[Raw] | None:
        """Return what an operation lists, or None where AWS does not tell, which becomes a gap."""
        client = self._clients(service)
        try:
            return _list(client, operation, key, parameters)
        except _failures() as exc:
            self.note(name_call(client, service, operation), explain(exc), is_denied=read_code(exc) in _DENIED)
            return None

    def act(self, service: str, operation: str, **parameters: Any) -> Raw:
        """Do something, and return the answer. Raises AwsError."""
        client = self._clients(service)
        try:
            answer: Raw = getattr(client, operation)(**parameters)
        except _failures() as exc:
            raise _refusal(name_call(client, service, operation), exc) from exc
        return answer

    def note(self, call: str, reason: str, *, is_denied: bool = False) -> None:
        """Keep a gap, once."""
        gap = Gap(call=call, reason=reason, is_denied=is_denied)
        with self._lock:
            if gap not in self.gaps:
                self.gaps.append(gap)

    def together(self, *questions: Callable[[], Any]) -> list[Any]:
        """Return the answers of questions that are asked at the same time."""
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(lambda question: question(), questions))


def name_call(client: Any, service: str, operation: str) -> str:
    """Return an operation as IAM policies name it: rds:DescribeDBInstances."""
    return f"{service}:{client.meta.method_to_api_mapping[operation]}"


def read_code(exc: Exception) -> str | None:
    """Return AWS's code of an error, None where AWS did not answer."""
    code: str | None = getattr(exc, "response", {}).get("Error", {}).get("Code")
    return code


def explain(exc: Exception) -> str:
    """Return the first line of what AWS or botocore says.

    The lines after it may hold a session's token: a wrong signature is answered with all that was to be signed.
    """
    if isinstance(exc, ResponseParserError):
        return "the answer is not from AWS, or the call is not supported"
    code = read_code(exc)
    message = str(exc) if code is None else getattr(exc, "response", {})["Error"].get("Message") or ""
    first_line = message.strip().partition("\n")[0].strip()
    return ": ".join(word for word in (code, first_line) if word) or type(exc).__name__


def _failures() -> tuple[type[Exception], ...]:
    """Return what botocore raises: AWS refuses, it cannot be asked, or something else answers in its place.

    Files and programs that credentials come from are read when they are needed, hence the system's own errors.
    """
    return ClientError, BotoCoreError, ResponseParserError, OSError


def _list(client: Any, operation: str, key: str, parameters: Raw) -> list[Raw]:
    if not client.can_paginate(operation):
        answer: list[Raw] = getattr(client, operation)(**parameters).get(key, [])
        return answer
    pages = client.get_paginator(operation).paginate(**parameters)
    return [item for page in pages for item in page.get(key, [])]


def _refusal(call: str, exc: Exception) -> AwsError:
    return AwsError(
        f"AWS refused or did not answer {call}",
        detail=f"{explain(exc)}.".replace("..", "."),
        hint="docs/rds.md and docs/settings.md list the permissions; AWS_PROFILE and "
        "AWS_REGION choose the account and region.",
        is_transient=_may_pass(exc),
    )


def _may_pass(exc: Exception) -> bool:
    """Whether AWS was busy or out of order (status 5xx), or the way to it."""
    status = getattr(exc, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return isinstance(exc, HTTPClientError) or read_code(exc) in _BUSY or status >= 500
