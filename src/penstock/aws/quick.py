"""What a load has to ask AWS before it starts: asked once, and not waited for long."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from penstock.aws.clients import AwsClients
from penstock.aws.rds import describe_instance
from penstock.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from penstock.model.server.rds import RdsDescription

_log = logging.getLogger(__name__)

# Reading botocore and its model of RDS takes 0.2 s; what RDS takes comes on top. A private network without a way to AWS
# delays a load by no more than this.
_PATIENCE_S = 1.5


def ask_briefly(
    host: str,
    *,
    now: datetime,
    patience_s: float = _PATIENCE_S,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> RdsDescription | None:
    """Return a brief description of the server behind an endpoint; None where AWS does not tell in time.

    Never raises, nor asks the user for the code of a device. Needs rds:DescribeDBInstances, for clusters
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

    # A daemon: credentials may come from a program or a service that hangs, and the process must be able to end.
    threading.Thread(target=ask, name="RDS instance", daemon=True).start()
    done.wait(patience_s)
    return found[0] if found else None
