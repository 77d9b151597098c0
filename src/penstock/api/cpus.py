"""How many CPUs the server has, where AWS knows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.loading.pace import plan_sessions
from penstock.model.endpoints import parse_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.model.endpoints import RdsEndpoint
    from penstock.model.plan import LoadPlan
    from penstock.model.rds import InstanceClass
    from penstock.model.server import ServerFacts

# A smaller load is over before the answer has paid for itself: asking takes 0.2 s and the time that AWS takes.
_WORTH_ASKING_BYTES = 64 * 1024 * 1024


def plan_by_instance_class(
    plan: LoadPlan,
    server: ServerFacts,
    *,
    host: str,
    ask: Callable[[RdsEndpoint], InstanceClass | None] | None = None,
) -> LoadPlan:
    """Return the plan with sessions for the CPUs of an RDS instance; as it is where they are not known.

    `host` is what was connected to. Nothing is asked for small loads and other hosts; never fails, waits 1.5 s at most.
    """
    endpoint = parse_endpoint(host)
    is_small = plan.size_bytes is not None and plan.size_bytes < _WORTH_ASKING_BYTES
    if endpoint is None or is_small:
        return plan
    if ask is None:
        from penstock.aws.quick import ask_class  # noqa: PLC0415 (paid for by who needs it)

        ask = ask_class
    found = ask(endpoint)
    if found is None or found.vcpu_count is None:
        return plan
    sessions = plan_sessions(
        asked=None,
        cpu_count=found.vcpu_count,
        free_connections=server.free_connections,
        size_bytes=plan.size_bytes,
        instance_class=found.name,
    )
    return replace(plan, sessions=sessions)
