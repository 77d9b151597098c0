"""Reads CloudWatch's metrics of an instance: one value a minute, a few minutes late."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.aws.calls import Calls
from penstock.aws.clients import AwsClients
from penstock.aws.find import find_endpoint, locate_endpoint, resolve_names
from penstock.model.server.device import LOCAL_METRICS
from penstock.model.server.rds import LocalStorageMetrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from penstock.aws.calls import Raw
    from penstock.aws.find import Resolve

_AGE = timedelta(minutes=15)
_PERIOD_S = 60


def read_local_storage(
    host: str,
    *,
    now: datetime,
    resolve: Resolve = resolve_names,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> LocalStorageMetrics | None:
    """Return the metrics of the local storage of an endpoint's instance, or None if it has no local storage.

    Needs rds:DescribeDBInstances (for clusters rds:DescribeDBClusters) and cloudwatch:GetMetricStatistics. Raises
    AwsError if the instance cannot be found.
    """
    endpoint = find_endpoint(host, resolve=resolve)
    if endpoint is None:
        return None
    clients = make_clients(region=endpoint.region, profile=None)
    try:
        calls = Calls(clients)
        instance = locate_endpoint(calls, endpoint).instance
        return None if instance is None else ask_local_storage(calls, instance, now=now)
    finally:
        clients.close()


def ask_local_storage(calls: Calls, instance: Raw, *, now: datetime) -> LocalStorageMetrics | None:
    """Return the latest values of the local storage's metrics, or None if there are none."""
    points = calls.together(*(lambda name=name: ask_metric(calls, instance, name, now=now) for name in LOCAL_METRICS))
    found = {name: newest(each) for name, each in zip(LOCAL_METRICS, points, strict=True) if each}
    if not found:
        return None
    return LocalStorageMetrics(
        instance=instance["DBInstanceIdentifier"],
        measured_at=max(point["Timestamp"] for point in found.values()).isoformat(),
        values={name: float(point["Average"]) for name, point in found.items()},
    )


def ask_metric(calls: Calls, instance: Raw, name: str, *, now: datetime) -> list[Raw] | None:
    """Return the recent values of a metric of an instance, or None if AWS does not give them."""
    return calls.ask(
        "cloudwatch",
        "get_metric_statistics",
        "Datapoints",
        Namespace="AWS/RDS",
        MetricName=name,
        Dimensions=[{"Name": "DBInstanceIdentifier", "Value": instance["DBInstanceIdentifier"]}],
        StartTime=now - _AGE,
        EndTime=now,
        Period=_PERIOD_S,
        Statistics=["Average"],
    )


def newest(points: list[Raw]) -> Raw:
    """Return the latest of some values, of which there is at least one."""
    return max(points, key=lambda point: point["Timestamp"])
