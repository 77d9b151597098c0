"""What a load has to ask AWS before it starts: asked once, and not waited for long."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, TypeVar

from penstock.aws.calls import Calls
from penstock.aws.classes import read_class
from penstock.aws.clients import AwsClients
from penstock.aws.find import find_class_name
from penstock.aws.rds import describe_instance
from penstock.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from penstock.model.endpoints import RdsEndpoint
    from penstock.model.rds import InstanceClass, RdsDescription

_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)

# Reading botocore and its model of RDS takes 0.2 s; what RDS takes comes on top. A private network without a way to AWS
# delays a load by no more than this.
_PATIENCE_S = 1.5


def ask_class(
    endpoint: RdsEndpoint,
    *,
    patience_s: float | None = None,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> InstanceClass | None:
    """Return the class behind an endpoint, its vCPUs by its name; None where AWS does not tell in time.

    Never raises, nor asks the user for the code of a device. Needs rds:DescribeDBInstances, for clusters
    rds:DescribeDBClusters.
    """
    allowed_s = _PATIENCE_S if patience_s is None else patience_s
    answer = _wait_for(
        lambda: _ask(endpoint, make_clients(region=endpoint.region, timeout_s=allowed_s)),
        patience_s=allowed_s,
        name="instance class",
    )
    return read_class(answer, None) if isinstance(answer, str) else None


def ask_windows(
    host: str,
    *,
    now: datetime,
    patience_s: float | None = None,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> RdsDescription | AwsError:
    """Return a brief description, with the windows, of the server behind an endpoint, or why AWS does not tell in time.

    Never raises, nor asks the user for the code of a device. Rights as for `ask_class`, and for a cluster's instances
    rds:DescribeDBClusters.
    """
    allowed_s = _PATIENCE_S if patience_s is None else patience_s

    def make(*, region: str | None, profile: str | None) -> AwsClients:
        clients = make_clients(region=region, profile=profile, timeout_s=allowed_s)
        if clients.has_prompt():
            raise AwsError("obtaining AWS credentials may ask for the code of a device, which a load does not wait for")
        return clients

    answer = _wait_for(
        lambda: describe_instance(host, now=now, is_brief=True, make_clients=make),
        patience_s=allowed_s,
        name="windows",
    )
    return AwsError(f"AWS did not answer within {allowed_s:g} s") if answer is None else answer


def _wait_for(question: Callable[[], _Answer | None], *, patience_s: float, name: str) -> _Answer | AwsError | None:
    """Return an answer, None where there is none in time, or what was raised."""
    found: list[_Answer | AwsError | None] = []
    done = threading.Event()

    def ask() -> None:
        try:
            found.append(question())
        except AwsError as error:
            _log.info("%s: %s", error.message, error.detail)
            found.append(error)
        finally:
            done.set()

    # A daemon: credentials may come from a program or a service that hangs, and the process must be able to end.
    threading.Thread(target=ask, name=name, daemon=True).start()
    done.wait(patience_s)
    return found[0] if found else None


def _ask(endpoint: RdsEndpoint, clients: AwsClients) -> str | None:
    try:
        return None if clients.has_prompt() else find_class_name(Calls(clients), endpoint)
    finally:
        clients.close()
