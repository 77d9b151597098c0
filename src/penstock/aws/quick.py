"""Asks AWS for a brief description of a server before a load starts, with a short time limit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.aws.clients import AwsClients
from penstock.aws.rds import describe_instance
from penstock.errors import AwsError
from penstock.model.load.tuning import DEFAULT_TUNING

if TYPE_CHECKING:
    from penstock.model.server.rds import RdsDescription

_log = logging.getLogger(__name__)


def ask_briefly(
    host: str,
    *,
    now: datetime,
    patience_s: float = DEFAULT_TUNING.aws_patience_s,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> RdsDescription | None:
    """Return a brief description of an endpoint's server, or None if AWS does not answer within `patience_s`.

    Never raises, and never prompts the user for an MFA code. Needs rds:DescribeDBInstances, for clusters
    rds:DescribeDBClusters.
    """

    def make(*, region: str | None, profile: str | None) -> AwsClients:
        clients = make_clients(region=region, profile=profile, timeout_s=patience_s)
        if clients.has_prompt():
            raise AwsError("AWS credentials may need a device code, which a load does not wait for")
        return clients

    found: list[RdsDescription] = []
    done = threading.Event()

    def ask() -> None:
        try:
            found.append(describe_instance(host, now=now, is_brief=True, make_clients=make))
        except AwsError as error:
            _log.info("%s: %s", error.message, error.detail)
        finally:
            done.set()

    # A daemon thread: a credential program or service may hang, and the process must still be able to end.
    threading.Thread(target=ask, name="RDS instance", daemon=True).start()
    done.wait(patience_s)
    return found[0] if found else None
