"""Adapts a load's plan to an RDS instance: sessions by its number of CPUs, and notices of near windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.values.dialect import Notice
from penstock.loading.pace import plan_sessions

if TYPE_CHECKING:
    from penstock.core.aws.values import RdsDescription
    from penstock.core.values.server import ServerFacts
    from penstock.loading.values.plan import LoadPlan


def plan_by_instance(
    plan: LoadPlan,
    server: ServerFacts,
    *,
    host: str,
    ask: Callable[[str], RdsDescription | None] | None = None,
    now: datetime | None = None,
) -> LoadPlan:
    """Return the plan with as many sessions as fit the CPUs of an RDS instance, and a notice for each near window.

    If the user gave the number of sessions, it is not changed. `host` is the host of the connection. The plan is
    returned unchanged if the load is small, if the host is not an endpoint of RDS, or if AWS does not answer within 1.5
    s. Never fails.
    """
    is_small = plan.size_bytes is not None and plan.size_bytes < plan.tuning.least_asking_bytes
    if is_small or not is_rds_endpoint(host):
        return plan
    now = now or datetime.now(UTC)
    if ask is None:
        from penstock.rds.describe import ask_briefly  # noqa: PLC0415 (56 ms, botocore)

        found = ask_briefly(host, now=now, patience_s=plan.tuning.aws_patience_s)
    else:
        found = ask(host)
    if found is None:
        return plan
    from penstock.core.aws.values import describe_near  # noqa: PLC0415 (2 ms, for servers on RDS)

    near = [Notice(code="window", message=text) for text in describe_near(found.windows, now=now)]
    plan = replace(plan, notices=(*plan.notices, *near))
    known = None if found.instance is None else found.instance.instance_class
    if known is None or known.vcpu_count is None or not plan.sessions.is_adaptive:
        return plan
    sessions = plan_sessions(
        asked=None,
        cpu_count=known.vcpu_count,
        free_connections=server.free_connections,
        size_bytes=plan.size_bytes,
        instance_class=known.name,
    )
    return replace(plan, sessions=sessions)
