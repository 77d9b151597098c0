"""Which roles a load by the server's route is held against, as AWS describes the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.core.aws.calls import Gap
from penstock.loading.imports.route import roles_of
from penstock.rds.values import AssociatedRole

_ROLE = AssociatedRole(arn="arn:r", feature="s3Import", status="ACTIVE")


def _answer(**found: Any) -> Any:
    return SimpleNamespace(**{"instance": None, "cluster": None, "gaps": (), **found})


def test_roles_are_those_of_instance_and_cluster() -> None:
    """An Aurora cluster has the role, and its instances have none."""
    instance = SimpleNamespace(identifier="db-1", roles=())
    found = _answer(instance=instance, cluster=SimpleNamespace(identifier="db", roles=(_ROLE,)))
    assert roles_of(found) == ("db-1", (_ROLE,))


def test_cluster_that_may_not_be_described_leaves_the_roles_unknown() -> None:
    """Its instance has no role of its own, which says nothing."""
    gaps = (Gap(call="rds:DescribeDBClusters", reason="denied", is_denied=True),)
    assert roles_of(_answer(instance=SimpleNamespace(identifier="db-1", roles=()), gaps=gaps))[1] is None
