"""Which roles a load by the server's route is held against, as AWS describes the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.core.aws.values import AssociatedRole, Gap
from penstock.loading.imports.choose import _ask_roles

if TYPE_CHECKING:
    import pytest

_HOST = "db-1.aaaaaaaaaaaa.eu-west-1.rds.amazonaws.com"
_ROLE = AssociatedRole(arn="arn:r", feature="s3Import", status="ACTIVE")


def _answer(monkeypatch: pytest.MonkeyPatch, **found: Any) -> None:
    answer = SimpleNamespace(**{"instance": None, "cluster": None, "gaps": (), **found})
    monkeypatch.setattr("penstock.rds.describe.ask_briefly", lambda *_, **__: answer)


def test_roles_are_those_of_instance_and_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Aurora cluster has the role, and its instances have none."""
    instance = SimpleNamespace(identifier="db-1", roles=())
    _answer(monkeypatch, instance=instance, cluster=SimpleNamespace(identifier="db", roles=(_ROLE,)))
    assert _ask_roles(_HOST, patience_s=1.0) == ("db-1", (_ROLE,))


def test_cluster_that_may_not_be_described_leaves_the_roles_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its instance has no role of its own, which says nothing."""
    gaps = (Gap(call="rds:DescribeDBClusters", reason="denied", is_denied=True),)
    _answer(monkeypatch, instance=SimpleNamespace(identifier="db-1", roles=()), gaps=gaps)
    assert _ask_roles(_HOST, patience_s=1.0)[1] is None
