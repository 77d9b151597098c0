"""The one question a load has to AWS before it starts: asked once, and not waited for long."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from penstock.aws.calls import Calls
from penstock.aws.classes import read_class
from penstock.aws.clients import AwsClients
from penstock.aws.find import find_class_name
from penstock.errors import AwsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model.endpoints import RdsEndpoint
    from penstock.model.rds import InstanceClass

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
    found: list[InstanceClass] = []
    done = threading.Event()

    def ask() -> None:
        try:
            class_name = _ask(endpoint, make_clients(region=endpoint.region, timeout_s=allowed_s))
            if class_name is not None:
                found.append(read_class(class_name, None))
        except AwsError as error:
            _log.info("%s: %s", error.message, error.detail)
        finally:
            done.set()

    # A daemon: credentials may come from a program or a service that hangs, and the process must be able to end.
    threading.Thread(target=ask, name="instance class", daemon=True).start()
    done.wait(allowed_s)
    return found[0] if found else None


def _ask(endpoint: RdsEndpoint, clients: AwsClients) -> str | None:
    try:
        return None if clients.has_prompt() else find_class_name(Calls(clients), endpoint)
    finally:
        clients.close()
