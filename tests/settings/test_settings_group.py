"""Leases in a parameter group of Amazon RDS: a fake RDS whose changes reach an embedded server."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import AwsError, ServerError, TargetError
from penstock.rds.parameter_groups import RdsParameterGroups
from penstock.settings.backend import GroupSettings
from penstock.settings.decide import make_profile
from support.changed_server import request_for
from support.fake_aws import cluster, instance
from support.fake_groups import FakeGroups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.changed_server import ChangedServer

HOST = "orders.c7tj4example.eu-west-1.rds.amazonaws.com"


@pytest.fixture
def rds_server(changed18: ChangedServer) -> Iterator[ChangedServer]:
    """Provide a server that looks like one of Amazon RDS to SQL."""
    changed18.execute("CREATE ROLE rds_superuser")
    yield changed18
    changed18.execute("DROP ROLE rds_superuser")


@pytest.fixture
def rds(rds_server: ChangedServer) -> FakeGroups:
    """Provide an RDS with instance orders and group loads16, whose parameters reach the server."""

    def apply(values: dict[str, str | None]) -> None:
        for name, value in values.items():
            rds_server.execute(f"ALTER SYSTEM RESET {name}" if value is None else f"ALTER SYSTEM SET {name} = {value}")
        rds_server.reload()

    return FakeGroups(instances=[attached("orders", "loads16")], parameters={"loads16": {}}, apply=apply)


def attached(name: str, group: str, state: str = "in-sync") -> dict[str, Any]:
    """Return an instance with a group."""
    return instance(name, DBParameterGroups=[{"DBParameterGroupName": group, "ParameterApplyStatus": state}])


@pytest.fixture
def open_settings(rds: FakeGroups, rds_server: ChangedServer) -> Iterator[Callable[..., GroupSettings]]:
    """Provide a function that returns a backend of its own, as each penstock has one."""
    opened: list[GroupSettings] = []

    def open_one(**more: Any) -> GroupSettings:
        groups = RdsParameterGroups(HOST, make_clients=rds.make_clients)
        waits = iter(range(10_000))
        connect = ConnectionFactory(rds_server.conninfo)
        backend = GroupSettings(connect, groups, clock=lambda: float(next(waits)), sleep=lambda _: None, **more)
        opened.append(backend)
        return backend

    yield open_one
    for backend in opened:
        backend.close()


def changes(rds: FakeGroups) -> list[str]:
    """Return the operations that changed something, in their order."""
    return [name for name, _ in rds.asked if not name.startswith(("Describe", "List", "Get"))]


@pytest.mark.parametrize("prior", [{}, {"max_wal_size": "2048", "work_mem": "9999"}])
def test_group_and_server_are_as_they_were(
    rds: FakeGroups, rds_server: ChangedServer, open_settings: Callable[..., GroupSettings], prior: dict[str, str]
) -> None:
    """Parameters, tags and values; those that had no value in the group have none again."""
    rds.parameters["loads16"] = dict(prior)
    rds.apply({name: value for name, value in prior.items() if name == "max_wal_size"})
    rds.lags = 3
    before = rds_server.show("max_wal_size"), rds_server.show("checkpoint_timeout")
    backend = open_settings()
    report, decision = backend.take(request_for())
    assert {change.name for change in decision.leased} == {"max_wal_size", "checkpoint_timeout"}
    assert rds.parameters["loads16"]["max_wal_size"] == "4096"
    assert (rds_server.show("max_wal_size"), rds_server.show("checkpoint_timeout")) == ("4GB", "30min")
    assert changes(rds).index("AddTagsToResource") < changes(rds).index("ModifyDBParameterGroup")
    ended = backend.release(report.lease_ids[0])
    assert {result.note for result in ended.results} == {None}
    assert rds.parameters["loads16"] == prior
    assert rds.tags["loads16"] == {}
    assert (rds_server.show("max_wal_size"), rds_server.show("checkpoint_timeout")) == before


@pytest.mark.part("rest")
def test_equal_values_are_shared_and_holders_that_have_gone_are_restored(
    rds: FakeGroups, rds_server: ChangedServer, open_settings: Callable[..., GroupSettings]
) -> None:
    """As with ALTER SYSTEM; another value is refused."""
    first, second, killed = open_settings(), open_settings(), open_settings()
    wanted = request_for("load 1", profile=make_profile({"max_wal_size": 5000.0}))
    one, _ = first.take(wanted)
    two, _ = second.take(replace(wanted, lease_id=request_for().lease_id))
    with pytest.raises(TargetError, match="for load_1"):
        killed.take(request_for(profile=make_profile({"max_wal_size": 6000.0})))
    second.release(two.lease_ids[0])
    assert rds_server.show("max_wal_size") == "5000MB"
    locks = "SELECT FROM pg_locks WHERE locktype = 'advisory'"
    second.close()
    others = len(rds_server.execute(locks))
    killed.take(request_for(profile=make_profile({"min_wal_size": 100.0})))
    killed.close()
    while len(rds_server.execute(locks)) > others:
        time.sleep(0.01)
    again, _ = second.take(replace(wanted, lease_id=request_for().lease_id))
    assert (rds_server.show("min_wal_size"), rds_server.show("max_wal_size")) == ("80MB", "5000MB")
    first.release(one.lease_ids[0])
    second.release(again.lease_ids[0])
    assert (rds.parameters["loads16"], rds.tags["loads16"]) == ({}, {})


def test_value_that_somebody_else_set_stays(rds: FakeGroups, open_settings: Callable[..., GroupSettings]) -> None:
    """In the console, say."""
    backend = open_settings()
    report, _ = backend.take(request_for())
    rds.parameters["loads16"]["max_wal_size"] = "3000"
    notes = {result.name: result.note for result in backend.release(report.lease_ids[0]).results}
    assert rds.parameters["loads16"] == {"max_wal_size": "3000"}
    assert "changed by another session" in (notes["max_wal_size"] or "")


def test_standing_lease_is_listed_and_restored(rds: FakeGroups, open_settings: Callable[..., GroupSettings]) -> None:
    """Any penstock can do this. The tags show who took the lease, and why."""
    open_settings().take(request_for(lasts_s=3600.0))
    overview = open_settings().leases().overview()
    (lease,) = overview.leases
    assert (lease.client, lease.reason, lease.pid) == ("test_host", "test", None)
    assert lease.until is not None
    wanted = {change.name: change.record["wanted"] for change in overview.changes if lease.wants(change)}
    assert wanted == {"max_wal_size": "4096", "checkpoint_timeout": "1800"}
    open_settings().leases().restore()
    assert (rds.parameters["loads16"], rds.tags["loads16"]) == ({}, {})


@pytest.mark.part("rest")
def test_lease_of_another_instance_stays(rds: FakeGroups, open_settings: Callable[..., GroupSettings]) -> None:
    """It is named; --forget ends it."""
    open_settings().take(request_for(lasts_s=3600.0))
    rds.instances = [{**attached("orders", "loads16"), "DbiResourceId": "db-ANOTHER"}]
    assert "was taken on db-ORDERS" in open_settings().leases().restore().warnings[0]
    assert rds.parameters["loads16"] != {}
    open_settings().leases().restore(forgets=True)
    assert (rds.parameters["loads16"], rds.tags["loads16"]) == ({}, {})


@pytest.mark.parametrize(
    ("instances", "words"),
    [
        ([attached("orders", "default.postgres16")], "one of AWS's default groups"),
        ([attached("orders", "loads16"), attached("copy", "loads16")], "is shared by"),
        ([attached("orders", "loads16", "pending-reboot")], "is pending-reboot"),
    ],
)
def test_group_that_is_not_to_be_changed(
    rds: FakeGroups, open_settings: Callable[..., GroupSettings], instances: list[dict[str, Any]], words: str
) -> None:
    """The error says what to do, and nothing is changed."""
    rds.instances = instances
    with pytest.raises(TargetError, match=words) as caught:
        open_settings().take(request_for())
    assert caught.value.hint
    assert changes(rds) == []
    decision, _ = open_settings().leases().look(request_for())
    assert words in (decision.obstacle or "")


def test_shared_group_is_changed_where_that_is_said(
    rds: FakeGroups, open_settings: Callable[..., GroupSettings]
) -> None:
    """By --shared-group."""
    rds.instances = [attached("orders", "loads16"), attached("copy", "loads16")]
    backend = open_settings(may_share_group=True)
    report, _ = backend.take(request_for())
    assert rds.parameters["loads16"]["max_wal_size"] == "4096"
    backend.release(report.lease_ids[0])


def test_instances_that_share_a_group_take_leases_beside_each_other(
    rds: FakeGroups, open_settings: Callable[..., GroupSettings]
) -> None:
    """What a parameter was stays known until the last of them that wants it ends."""
    copy = {**attached("orders", "loads16"), "DbiResourceId": "db-COPY"}
    first, second = open_settings(may_share_group=True), open_settings(may_share_group=True)
    one, _ = first.take(request_for(profile=make_profile({"max_wal_size": 5000.0})))
    rds.instances = [copy, attached("other", "loads16")]
    two, _ = second.take(request_for(profile=make_profile({"max_wal_size": 5000.0, "min_wal_size": 100.0})))
    assert rds.parameters["loads16"] == {"max_wal_size": "5000", "min_wal_size": "100"}
    second.release(two.lease_ids[0])
    assert rds.parameters["loads16"] == {"max_wal_size": "5000"}
    changes = [key for key in rds.tags["loads16"] if key.startswith("penstock:change:")]
    assert changes == ["penstock:change:setting:max_wal_size"]
    rds.instances = [attached("orders", "loads16")]
    first.release(one.lease_ids[0])
    assert (rds.parameters["loads16"], rds.tags["loads16"]) == ({}, {})


def test_formula_is_left_alone(rds: FakeGroups, open_settings: Callable[..., GroupSettings]) -> None:
    """Leases hold numbers only."""
    rds.parameters["loads16"] = {"max_wal_size": "{DBInstanceClassMemory/4096}"}
    with pytest.raises(TargetError, match="is a formula"):
        open_settings().take(request_for())
    assert changes(rds) == []


@pytest.mark.part("rest")
def test_values_that_never_arrive_are_an_error_and_go_back(
    rds: FakeGroups, open_settings: Callable[..., GroupSettings]
) -> None:
    """The group is as it was; the lease's tags stay for restore only while that is not seen to."""
    rds.apply = lambda _: None
    with pytest.raises(ServerError, match="has an unexpected value"):
        open_settings().take(request_for())
    assert rds.parameters["loads16"] == {}
    assert rds.tags["loads16"] == {}


@pytest.mark.part("rest")
@pytest.mark.parametrize(
    "operation", ["DescribeDBInstances", "ListTagsForResource", "ResetDBParameterGroup", "RemoveTagsFromResource"]
)
def test_end_of_a_lease_waits_for_aws_that_is_busy(
    rds: FakeGroups, open_settings: Callable[..., GroupSettings], operation: str
) -> None:
    """At the end of a load nobody may be there to do it later; a denied call is not tried again."""
    backend = open_settings()
    report, _ = backend.take(request_for())
    rds.throttled = {operation: 3}
    assert backend.release(report.lease_ids[0]).warnings == ()
    assert (rds.parameters["loads16"], rds.tags["loads16"]) == ({}, {})
    again, _ = backend.take(request_for())
    rds.asked, rds.denied = [], {operation: "not allowed"}
    with pytest.raises(AwsError, match=operation):
        backend.release(again.lease_ids[0])
    assert [name for name, _ in rds.asked].count(operation) == 1


def test_group_that_is_attached_no_more_is_put_back_too(
    rds: FakeGroups, open_settings: Callable[..., GroupSettings]
) -> None:
    """Somebody attached another while the lease stood; the first one may be others' too."""
    rds.parameters["loads16"] = {"max_wal_size": "2048"}
    rds.apply({"max_wal_size": "2048"})
    backend = open_settings()
    report, _ = backend.take(request_for())
    rds.instances = [attached("orders", "new16", "pending-reboot")]
    ended = backend.release(report.lease_ids[0])
    assert (rds.parameters["loads16"], rds.tags["loads16"]) == ({"max_wal_size": "2048"}, {})
    assert ended.lease_ids == report.lease_ids
    (warning,) = ended.warnings
    assert "parameter group new16 is attached" in warning


def test_static_parameter_that_waits_for_a_reboot_holds_nothing_up(
    rds: FakeGroups, rds_server: ChangedServer, open_settings: Callable[..., GroupSettings]
) -> None:
    """Somebody else set it during the lease. penstock's own parameters are dynamic, so SQL shows when they apply."""
    open_settings().take(request_for(lasts_s=3600.0))
    rds.instances = [attached("orders", "loads16", "pending-reboot")]
    report = open_settings().leases().restore()
    assert {result.note for result in report.results} == {None}
    assert (rds.parameters["loads16"], rds.tags["loads16"]) == ({}, {})
    assert rds_server.show("max_wal_size") == "1GB"


@pytest.mark.part("rest")
def test_dies_between_any_two_calls(
    rds: FakeGroups, rds_server: ChangedServer, open_settings: Callable[..., GroupSettings]
) -> None:
    """Whatever was the last call that AWS took, restore brings the group back."""
    prior = {"max_wal_size": "2048"}
    rds.parameters["loads16"] = dict(prior)
    rds.apply({"max_wal_size": "2048"})

    def run() -> None:
        backend = open_settings()
        try:
            backend.release(backend.take(request_for())[0].lease_ids[0])
        finally:
            backend.close()

    run()
    changing = {number for number, (name, _) in enumerate(rds.asked, 1) if not name.startswith(("Desc", "List", "Get"))}
    assert len(changing) == 5
    for last in sorted(changing)[:-1]:
        rds.asked, rds.dies_after = [], last
        with pytest.raises(AwsError):
            run()
        rds.dies_after = None
        while rds_server.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'"):
            time.sleep(0.01)
        open_settings().leases().restore()
        assert (rds.parameters["loads16"], rds.tags["loads16"]) == (prior, {}), last
        assert rds_server.show("max_wal_size") == "2GB"


def test_group_of_a_cluster_that_is_not_told_is_not_taken_for_the_instances(rds: FakeGroups) -> None:
    """An instance of a Multi-AZ DB cluster has a group of its own too, which decides nothing and holds no lease."""
    rds.instances = [{**attached("orders", "default.postgres16"), "DBClusterIdentifier": "trio"}]
    rds.clusters = [cluster("trio", ["orders"], Engine="postgres", DBClusterParameterGroup="loads16")]
    groups = RdsParameterGroups(HOST, make_clients=rds.make_clients)
    assert (groups.describe().name, groups.describe(is_brief=True).owner) == ("loads16", "cluster")
    rds.denied = {"DescribeDBClusters": "not allowed"}
    for is_brief in (True, False):
        with pytest.raises(AwsError, match="does not report which parameter group"):
            groups.describe(is_brief=is_brief)
    rds.instances[0]["Engine"] = "aurora-postgresql"
    assert groups.describe().name == "default.postgres16"
    groups.close()


def test_denied_call_is_named(rds: FakeGroups, open_settings: Callable[..., GroupSettings]) -> None:
    """As IAM spells it."""
    rds.denied = {"AddTagsToResource": "not allowed"}
    with pytest.raises(AwsError) as caught:
        open_settings().take(request_for())
    assert "rds:AddTagsToResource" in str(caught.value)
    assert "docs/settings.md" in (caught.value.hint or "")
    assert rds.parameters["loads16"] == {}


def test_more_than_twenty_parameters_take_several_calls(rds: FakeGroups) -> None:
    """RDS takes no more at a time."""
    rds.apply = lambda _: None
    groups = RdsParameterGroups(HOST, make_clients=rds.make_clients)
    group = groups.describe()
    groups.write(group, {f"p{number}": None if number % 2 else "1" for number in range(90)})
    assert changes(rds) == ["ModifyDBParameterGroup"] * 3 + ["ResetDBParameterGroup"] * 3
    assert len(groups.read_values(group)) == 45
    groups.create_like(group, "more")
    assert rds.parameters["more"] == {}
    groups.close()
