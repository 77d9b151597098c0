"""Calls the AWS API. `ask` records a call that AWS refuses as a gap; `need` and `act` raise an error instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.parsers import ResponseParserError

from penstock.core.errors import AwsError
from penstock.core.slotted import slotted

if TYPE_CHECKING:
    # botocore creates the classes of its clients at run time, so there is no type to name here.
    Clients: TypeAlias = Callable[[str], Any]

Raw: TypeAlias = dict[str, Any]

# Error codes for an object that does not exist.
_NOT_FOUND = frozenset(
    {"DBInstanceNotFound", "DBInstanceNotFoundFault", "DBClusterNotFoundFault", "DBClusterEndpointNotFoundFault"}
)

# Error codes for a call that no policy allows.
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})

# Error codes for a temporary state. botocore has retried such a call for some seconds before it raises the error.
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "InvalidDBParameterGroupState"})

# The errors that a call can raise: AWS refuses the call, AWS cannot be reached, or another server answers. OSError is
# included, because a call also reads the files of credentials, and starts the programs that return credentials.
_FAILURES = (ClientError, BotoCoreError, ResponseParserError, OSError)

# How many calls can be made at the same time.
_THREADS = 8


@slotted
class Gap:
    """A call to AWS that AWS refused or did not answer."""

    # The call's name in IAM policies.
    call: str
    reason: str
    # Whether no policy allows the call.
    is_denied: bool = False


class Calls:
    """Calls AWS. Threads may share it. The attribute `gaps` lists calls that AWS refused or did not answer.

    `clients` takes the name of a service, such as rds, and returns botocore's client for it. In the methods, `service`
    is such a name, `operation` is a method of the client, such as describe_db_instances, and `parameters` are its
    arguments. `key` is the key of the answer that has the list of objects, such as DBInstances.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self.gaps: list[Gap] = []

    def need(self, service: str, operation: str, key: str, **parameters: Any) -> list[Raw]:
        """Return the objects that an operation lists, from all pages of the answer.

        If AWS does not know the object that `parameters` name, return an empty list. Raises AwsError if AWS refuses for
        another reason or does not answer.
        """
        client = self._clients(service)
        try:
            return _list(client, operation, key, parameters)
        except _FAILURES as exc:
            if read_code(exc) in _NOT_FOUND:
                return []
            raise _refusal(name_call(client, service, operation), exc) from exc

    def ask(self, service: str, operation: str, key: str, **parameters: Any) -> list[Raw] | None:
        """Return the objects that an operation lists, from all pages of the answer.

        If AWS refuses or does not answer, add the call to `gaps` and return None.
        """
        client = self._clients(service)
        try:
            return _list(client, operation, key, parameters)
        except _FAILURES as exc:
            self.note(name_call(client, service, operation), explain(exc), is_denied=read_code(exc) in _DENIED)
            return None

    def act(self, service: str, operation: str, **parameters: Any) -> Raw:
        """Call an operation that changes something or lists nothing, and return the answer. Raises AwsError."""
        client = self._clients(service)
        try:
            answer: Raw = getattr(client, operation)(**parameters)
        except _FAILURES as exc:
            raise _refusal(name_call(client, service, operation), exc) from exc
        return answer

    def note(self, call: str, reason: str, *, is_denied: bool = False) -> None:
        """Add a call that AWS refused or did not answer to `gaps`, unless `gaps` has an equal one.

        `call` is the call's name in IAM policies. `is_denied` is true if no policy allows the call.
        """
        gap = Gap(call=call, reason=reason, is_denied=is_denied)
        with self._lock:
            if gap not in self.gaps:
                self.gaps.append(gap)

    def together(self, *questions: Callable[[], Any]) -> list[Any]:
        """Call the functions at the same time, and return their results in the order of the functions.

        Raises the errors of the functions.
        """
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(lambda question: question(), questions))


def name_call(client: Any, service: str, operation: str) -> str:
    """Return an operation's name as IAM policies spell it, such as rds:DescribeDBInstances."""
    return f"{service}:{client.meta.method_to_api_mapping[operation]}"


def read_code(exc: Exception) -> str | None:
    """Return AWS's error code from an error of botocore, or None if AWS did not send one."""
    code: str | None = getattr(exc, "response", {}).get("Error", {}).get("Code")
    return code


def explain(exc: Exception) -> str:
    """Return the first line of an error message of AWS or botocore.

    Later lines are not shown, because they may contain a session's token: if a signature is wrong, AWS repeats the
    whole text that had to be signed.
    """
    if isinstance(exc, ResponseParserError):
        return "the answer is not from AWS, or the call is not supported"
    code = read_code(exc)
    message = str(exc) if code is None else getattr(exc, "response", {})["Error"].get("Message") or ""
    first_line = message.strip().partition("\n")[0].strip()
    return ": ".join(word for word in (code, first_line) if word) or type(exc).__name__


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
    """Return whether a retry may succeed, because AWS throttled or failed (status 5xx), or the connection failed."""
    status = getattr(exc, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return isinstance(exc, HTTPClientError) or read_code(exc) in _BUSY or status >= 500
