"""Asks AWS about the RDS instance of a load, and gathers the facts for the load's route. route.py decides.

Of the instance, its class and the maintenance windows that are near are asked. The facts for the route come from the
server, the AWS configuration and AWS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.connect.connection import Connection
from penstock.core.connect.endpoints import is_rds_endpoint
from penstock.core.values.job import LoadRules
from penstock.core.values.mode import RoutePlan
from penstock.core.values.notice import Notice
from penstock.loading.imports.route import RouteFacts, plan_import
from penstock.loading.imports.server import read_import_rights
from penstock.loading.values.plan import TargetPlan

if TYPE_CHECKING:
    from penstock.rds.describe import BriefQuestion
    from penstock.rds.values import AssociatedRole, InstanceClass, RdsDescription


def plan_route(
    targets: Sequence[TargetPlan], rules: LoadRules, connection: Connection, *, described: RdsDescription | None
) -> RoutePlan:
    """Return the route of a load with --via server. Raises UsageError, TargetError, ServerError.

    `described` is AWS's description of the server; without it, the roles of an RDS instance are not checked.
    """
    instance, roles = roles_of(described)
    facts = RouteFacts(
        rights=read_import_rights(connection),
        region=AwsCredentials().s3_config().get("region"),
        server_major=connection.info.server_version // 10_000,
        roles=roles,
        instance=instance,
    )
    return plan_import(targets, rules, facts)


def roles_of(found: RdsDescription | None) -> tuple[str, tuple[AssociatedRole, ...] | None]:
    """Return the identifier and the roles of an RDS instance, including those of its cluster.

    Returns "" and None if they are not known.
    """
    owners = [] if found is None else [owner for owner in (found.instance, found.cluster) if owner is not None]
    # Report no roles if the cluster may not be described, because it may have the role that the instance lacks.
    if found is None or not owners or any(gap.call == "rds:DescribeDBClusters" for gap in found.gaps):
        return "", None
    return owners[0].identifier, tuple(role for owner in owners for role in owner.roles)


def begin_asking(host: str, *, is_worth: bool, patience_s: float) -> BriefQuestion | None:
    """Begin to ask AWS about the server `host`, and return the question, or None if AWS is not asked.

    AWS is not asked if the server is not on RDS, if `is_worth` is false, or if `patience_s` is 0. The answer is awaited
    for `patience_s` seconds.
    """
    if not is_worth or patience_s <= 0 or not is_rds_endpoint(host):
        return None
    from penstock.rds.describe import BriefQuestion  # noqa: PLC0415 (56 ms, botocore)

    return BriefQuestion(host, now=datetime.now(UTC), patience_s=patience_s)


def await_answer(question: BriefQuestion | None, *, on_notice: Callable[[str], None]) -> RdsDescription | None:
    """Return AWS's description of the server, or None if AWS was not asked or does not answer in time.

    If AWS does not answer, `on_notice` is called with the reason.
    """
    if question is None:
        return None
    found = question.answer()
    if found is None:
        on_notice(
            f"the vCPUs and the windows of the instance are not known: {question.refusal} (--aws-timeout is how long "
            "to wait; 0 does not ask)"
        )
    return found


def class_of(found: RdsDescription | None) -> InstanceClass | None:
    """Return the class of the described instance, None if it is not known."""
    return None if found is None or found.instance is None else found.instance.instance_class


def find_near_windows(found: RdsDescription | None, *, now: datetime | None = None) -> list[Notice]:
    """Return a notice for each maintenance or backup window of the described instance that begins soon or has begun."""
    if found is None:
        return []
    from penstock.rds.values import describe_near  # noqa: PLC0415 (2 ms, for servers on RDS)

    near = describe_near(found.windows, now=now or datetime.now(UTC))
    return [Notice(code="window", message=text) for text in near]
