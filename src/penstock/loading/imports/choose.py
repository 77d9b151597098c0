"""Gathers the facts for a load's route from the server, the AWS configuration and AWS. route.py decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.aws.credentials import AwsCredentials
from penstock.core.errors import DataError, SourceError
from penstock.loading.imports.route import RouteFacts, check_importable, choose_route, keep_client
from penstock.loading.imports.server import measure_link, read_import_rights
from penstock.loading.values.work import all_objects

if TYPE_CHECKING:
    from penstock.core.connect.connection import Connection
    from penstock.core.values.job import LoadRules
    from penstock.core.values.mode import RoutePlan
    from penstock.loading.files.streams import SourceReader
    from penstock.loading.values.plan import TargetPlan
    from penstock.rds.values import AssociatedRole, RdsDescription


def plan_route(
    targets: Sequence[TargetPlan],
    rules: LoadRules,
    connection: Connection,
    sources: SourceReader,
    *,
    described: RdsDescription | None,
    sessions: int,
) -> RoutePlan:
    """Return who reads the objects of a load, penstock or the server, as --via says.

    Raises UsageError, TargetError, ServerError, SourceError. For --via auto, the link to the server is measured by
    sending 2 MiB. `described` is AWS's description of the server; without it, the roles of an RDS instance are not
    checked. `sessions` is how many sessions the load would begin with. If the server cannot import an object as it is,
    --via auto chooses that penstock reads the objects. With --via server, the load fails later.
    """
    instance, roles = roles_of(described)
    facts = RouteFacts(
        rights=read_import_rights(connection),
        region=AwsCredentials().s3_config().get("region"),
        server_major=connection.info.server_version // 10_000,
        roles=roles,
        instance=instance,
        link=measure_link(connection) if rules.via == "auto" else None,
    )
    chosen = choose_route(targets, rules, facts, sessions=sessions)
    if not chosen.is_import or rules.via == "server":
        return chosen
    try:
        check_importable(all_objects(targets), sources)
    except (SourceError, DataError) as misfit:
        return keep_client(misfit.message)
    return chosen


def roles_of(found: RdsDescription | None) -> tuple[str, tuple[AssociatedRole, ...] | None]:
    """Return the identifier and the roles of an RDS instance, including those of its cluster.

    Returns "" and None if they are not known.
    """
    owners = [] if found is None else [owner for owner in (found.instance, found.cluster) if owner is not None]
    # Report no roles if the cluster may not be described, because it may have the role that the instance lacks.
    if found is None or not owners or any(gap.call == "rds:DescribeDBClusters" for gap in found.gaps):
        return "", None
    return owners[0].identifier, tuple(role for owner in owners for role in owner.roles)
