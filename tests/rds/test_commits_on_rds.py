"""The experiment on commits on an endpoint of RDS: CloudWatch's metrics beside its runs."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from penstock.cli.options import open_target
from penstock.core.connect.connection import ConnectionFactory
from penstock.rds.metrics import read_late_points
from penstock.watch.sampler import AwsFeeds, Sampler
from penstock.watch.watching import LatePoints
from penstock_lab.bench.command import _find_sampler
from penstock_lab.bench.commits.plan import Sweep
from penstock_lab.bench.commits.run import measure_commits
from penstock_lab.bench.commits.table import metric_rows
from rds.conftest import put_metric
from support.moto_rds import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.values.device import CounterRow
    from rds.conftest import MotoRds

TINY = Sweep(
    rows=100, rows_per_commit=(100, 1), rounds=1, limit_s=None, check_rows=1_000, watch_s=0.1, begin_within_s=60.0
)
# moto has the metrics at once, also those of minutes to come.
AHEAD = timedelta(minutes=3)


@pytest.mark.part("rest")
def test_metrics_of_the_minutes_of_the_runs_stand_beside_them(database18: str, moto_rds: MotoRds) -> None:
    """As CloudWatch has them, from the same calls as those of penstock watch."""
    at = datetime.now(UTC).replace(second=0, microsecond=0)
    for minute in range(3):
        put_metric(moto_rds.url, "orders", "CommitLatency", 4.0, at=at + minute * timedelta(minutes=1))
    factory = ConnectionFactory(database18)

    def ask(host: str, _: datetime) -> dict[str, list[CounterRow]]:
        return read_late_points(host, since=at, now=datetime.now(UTC) + AHEAD)

    def open_one() -> Sampler:
        points = LatePoints(moto_rds.instance, read=ask, every_s=0.1)
        return Sampler(factory, interval_s=0.1, feeds=AwsFeeds(take_late_points=points.take))

    (target,) = measure_commits(TINY, to=factory, open_sampler=open_one).targets
    assert [dict(run.metrics)["CommitLatency"] for run in target.sizes] == [4.0, 4.0]
    heading, *rows = metric_rows(target)
    assert [dict(zip(heading, row, strict=True))["CommitLatency"] for row in rows] == ["4", "4"]


@pytest.mark.part("rest")
def test_aws_is_asked_of_the_instance_behind_an_endpoint_of_rds(reach: Callable[..., str]) -> None:
    """And not of another server."""
    to, events = reach(), Events()
    connect = open_target({"to": to})
    open_one = _find_sampler(connect, to)
    assert open_one is not None
    with events.watching(), closing(connect), closing(open_one()):
        assert "DescribeDBInstances" in events.asked
    assert _find_sampler(connect, "host=localhost") is None
