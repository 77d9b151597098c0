"""Adapts a load's plan to an RDS instance: sessions by its number of CPUs, and notices of near windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.values.notice import Notice
from penstock.loading.pace import plan_sessions

if TYPE_CHECKING:
    from penstock.core.aws.values import RdsDescription
    from penstock.core.values.server import ServerFacts
    from penstock.loading.values.plan import LoadPlan
    from penstock.rds.describe import BriefQuestion


def begin_asking(host: str, *, is_worth: bool, patience_s: float) -> BriefQuestion | None:
    """Begin to ask AWS about the server of a connection, None if it is not on RDS or if it is not worth the time."""
    if not is_worth or patience_s <= 0 or not is_rds_endpoint(host):
        return None
    from penstock.rds.describe import BriefQuestion  # noqa: PLC0415 (56 ms, botocore)

    return BriefQuestion(host, now=datetime.now(UTC), patience_s=patience_s)


def await_answer(question: BriefQuestion | None, *, on_notice: Callable[[str], None]) -> RdsDescription | None:
    """Return AWS's answer, or None if AWS was not asked. If AWS does not answer, show that, and return None."""
    if question is None:
        return None
    found = question.answer()
    if found is None:
        on_notice(
            f"the vCPUs and the windows of the instance are not known: {question.refusal} (--aws-timeout is how long "
            "to wait; 0 does not ask)"
        )
    return found


def plan_by_instance(
    plan: LoadPlan, server: ServerFacts, found: RdsDescription | None, *, now: datetime | None = None
) -> LoadPlan:
    """Return the plan with as many sessions as fit the CPUs of an RDS instance, and a notice for each near window.

    If the user gave the number of sessions, it is not changed. The plan is returned unchanged if AWS has described
    nothing. Never fails.
    """
    if found is None:
        return plan
    from penstock.core.aws.values import describe_near  # noqa: PLC0415 (2 ms, for servers on RDS)

    now = now or datetime.now(UTC)
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
