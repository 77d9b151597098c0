"""The metrics of CloudWatch and Performance Insights in what watch records: late, each at its own time."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from penstock.core.connect.connection import ConnectionFactory
from penstock.core.errors import AwsError
from penstock.rds.metrics import read_extremes, read_instance_metrics, read_late_points
from penstock.watch.sampler import AwsFeeds, Sampler
from penstock.watch.watching import LatePoints
from rds.conftest import put_metric
from support.fake_aws import ACCOUNT, NOW, REGION, FakeAws, instance

if TYPE_CHECKING:
    from penstock.core.values.device import CounterRow
    from rds.conftest import MotoRds

HOST = f"orders.{ACCOUNT}.{REGION}.rds.amazonaws.com"
LOAD = {"IO:DataFileRead": [1.5, 2.5], "CPU": [0.5]}


def read(aws: FakeAws) -> dict[str, list[CounterRow]]:
    return read_late_points(HOST, since=NOW - timedelta(hours=1), now=NOW, make_clients=aws.make_clients)


def test_metrics_of_a_minute_are_one_row_at_its_own_time() -> None:
    """A metric that is later than another one is missing from the row until it is there."""
    aws = FakeAws(
        instances=[instance("orders")], metrics={"orders ReadIOPS": [5.0, 7.0], "orders BurstBalance": [99.0]}
    )
    known = {"instance": "orders", "period_s": 60}
    assert read(aws)["rds_metrics"] == [
        {**known, "measured_at": NOW.isoformat(), "ReadIOPS": 5.0, "BurstBalance": 99.0},
        {**known, "measured_at": (NOW + timedelta(minutes=1)).isoformat(), "ReadIOPS": 7.0},
    ]


def test_performance_insights_has_the_sessions_of_a_minute_by_their_waits() -> None:
    """Without the total, oldest first."""
    aws = FakeAws(instances=[instance("orders", PerformanceInsightsEnabled=True)], load=LOAD)
    rows = read(aws)["rds_load"]
    assert [(row["wait"], row["sessions"]) for row in rows] == [
        ("IO:DataFileRead", 1.5),
        ("CPU", 0.5),
        ("IO:DataFileRead", 2.5),
    ]
    assert {row["measured_at"] for row in rows} == {NOW.isoformat(), (NOW + timedelta(minutes=1)).isoformat()}


def test_performance_insights_is_not_asked_where_it_is_off() -> None:
    aws = FakeAws(instances=[instance("orders")], load=LOAD)
    assert read(aws)["rds_load"] == []
    assert "GetResourceMetrics" not in {operation for operation, _ in aws.asked}


def test_what_is_denied_is_left_out() -> None:
    """The one without the other."""
    denied = {"GetResourceMetrics": "not for you"}
    values = {"orders ReadIOPS": [5.0]}
    raw = instance("orders", PerformanceInsightsEnabled=True)
    found = read(FakeAws(instances=[raw], load=LOAD, metrics=values, denied=denied))
    assert (len(found["rds_metrics"]), found["rds_load"]) == (1, [])


@pytest.mark.parametrize(("hours", "period_s"), [(1, 60), (24, 60), (25, 120), (72, 180)])
def test_a_long_time_is_asked_for_in_longer_periods(hours: int, period_s: int) -> None:
    """CloudWatch returns 1,440 values at most."""
    aws = FakeAws(instances=[instance("orders")])
    read_instance_metrics("orders", since=NOW - timedelta(hours=hours), until=NOW, make_clients=aws.make_clients)
    assert {parameters["Period"] for _, parameters in aws.asked} == {period_s}


def test_means_and_highest_values_of_minutes_are_read_of_an_endpoint() -> None:
    """Each by its own statistic; another host has none."""
    aws = FakeAws(instances=[instance("orders")], metrics={"orders DiskQueueDepth": [5.0]})
    period = {"since": NOW - timedelta(hours=1), "until": NOW, "make_clients": aws.make_clients}
    means, highest = read_extremes(HOST, **period)
    assert [row["DiskQueueDepth"] for row in (*means, *highest)] == [5.0, 5.0]
    asked = [parameters["Statistics"] for operation, parameters in aws.asked if operation == "GetMetricStatistics"]
    assert {each for (each,) in asked} == {"Average", "Maximum"}
    assert read_extremes("db.example.com", **period) == ([], [])


def wait_for_polls(count: int, answers: list[list[CounterRow] | AwsError]) -> LatePoints:
    """Return a feed that has had so many answers."""
    done = threading.Event()
    asked = 0

    def answer(host: str, since: datetime) -> dict[str, list[CounterRow]]:
        nonlocal asked
        assert (host, since.tzinfo) == (HOST, UTC)
        if asked == count:
            done.set()
            # Nothing more: the test looks at what there is.
            raise AwsError("denied")
        given = answers[asked]
        asked += 1
        if isinstance(given, AwsError):
            raise given
        return {"rds_metrics": given}

    feed = LatePoints(HOST, read=answer, every_s=0.0)
    done.wait()
    return feed


def test_a_row_is_recorded_once_and_again_when_it_is_completed() -> None:
    """And an answer that fails for a moment does not end it."""
    first: CounterRow = {"measured_at": "2026-11-21T12:00:00+00:00", "ReadIOPS": 5.0}
    whole: CounterRow = {**first, "CPUUtilization": 50.0}
    busy = AwsError("busy", is_transient=True)
    feed = wait_for_polls(5, [[first], [first], busy, [whole], [whole]])
    assert feed.take() == {"rds_metrics": (first, whole)}
    assert feed.take() == {}


def test_samples_have_the_rows_that_came_since_the_last_one(database18: str) -> None:
    """Each in one sample."""
    row: CounterRow = {"measured_at": "2026-11-21T12:00:00+00:00", "ReadIOPS": 5.0}
    feed = wait_for_polls(1, [[row]])
    sampler = Sampler(ConnectionFactory(database18), interval_s=1, feeds=AwsFeeds(take_late_points=feed.take))
    try:
        samples = [sampler.sample(reads_all=True), sampler.sample(reads_all=True)]
    finally:
        sampler.close()
    assert [sample.counters.get("rds_metrics") for sample in samples] == [(row,), None]


def test_motos_metrics_are_read_over_http(moto_rds: MotoRds) -> None:
    """Moto does not say whether Performance Insights is on, and has no such service."""
    now = datetime.now(UTC)
    put_metric(moto_rds.url, "orders-copy", "DiskQueueDepth", 34.0, at=now - timedelta(minutes=3))
    host = moto_rds.instance.replace("orders.", "orders-copy.")
    found = read_late_points(host, since=now - timedelta(minutes=10), now=now)
    assert [row["DiskQueueDepth"] for row in found["rds_metrics"]] == [34.0]
    assert found["rds_load"] == []
