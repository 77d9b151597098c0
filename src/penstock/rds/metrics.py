"""Reads the metrics of an instance from CloudWatch and Performance Insights: one value a minute, some minutes late."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial

from penstock.core.aws.calls import Calls, Raw
from penstock.core.errors import AwsError
from penstock.core.values.device import LOCAL_METRICS, METRIC_NAMES, RDS_LOAD, RDS_METRICS, CounterRow
from penstock.rds.clients import AwsClients, find_endpoint, locate_endpoint, resolve_names
from penstock.rds.values import LocalStorageMetrics

_AGE = timedelta(minutes=15)
_PERIOD_S = 60
# The most values that CloudWatch returns in one answer.
_MOST_POINTS = 1440
# How many waits Performance Insights is asked for, the largest first.
_MOST_WAITS = 10


@contextmanager
def _finding_instance(host: str, make_clients: Callable[..., AwsClients]) -> Iterator[tuple[Calls, Raw] | None]:
    """Provide the instance of an endpoint, and calls to its region; None if there is no instance. Raises AwsError."""
    endpoint = find_endpoint(host, resolve=resolve_names)
    if endpoint is None:
        yield None
        return
    with closing(make_clients(region=endpoint.region, profile=None)) as clients:
        calls = Calls(clients)
        instance = locate_endpoint(calls, endpoint).instance
        yield None if instance is None else (calls, instance)


def read_local_storage(
    host: str, *, now: datetime, make_clients: Callable[..., AwsClients] = AwsClients
) -> LocalStorageMetrics | None:
    """Return CloudWatch's metrics of the local storage of an endpoint's instance, None if it has no local storage.

    Needs rds:DescribeDBInstances (for clusters rds:DescribeDBClusters) and cloudwatch:GetMetricStatistics. Raises
    AwsError if the instance cannot be found.
    """
    with _finding_instance(host, make_clients) as found:
        return None if found is None else ask_local_storage(*found, now=now)


def ask_local_storage(calls: Calls, instance: Raw, *, now: datetime) -> LocalStorageMetrics | None:
    """Return CloudWatch's latest values of the metrics of an instance's local storage, None if it has none.

    `instance` is the instance as RDS's API describes it.
    """
    points = calls.together(*(lambda name=name: ask_recent(calls, instance, name, now=now) for name in LOCAL_METRICS))
    found = {name: newest(each) for name, each in zip(LOCAL_METRICS, points, strict=True) if each}
    if not found:
        return None
    return LocalStorageMetrics(
        instance=instance["DBInstanceIdentifier"],
        measured_at=max(point["Timestamp"] for point in found.values()).isoformat(),
        values={name: float(point["Average"]) for name, point in found.items()},
    )


def read_instance_metrics(
    identifier: str,
    *,
    since: datetime,
    until: datetime,
    region: str | None = None,
    profile: str | None = None,
    make_clients: Callable[..., AwsClients] = AwsClients,
) -> list[CounterRow]:
    """Return CloudWatch's metrics of an instance as rows of a recording, the oldest first, one for each minute.

    A row has the mean of each metric by its name. For a period of more than a day, each row covers several minutes.
    Needs cloudwatch:GetMetricStatistics. Raises AwsError if no metric can be read.
    """
    with closing(make_clients(region=region, profile=profile)) as clients:
        calls = Calls(clients)
        rows = _ask_metrics(calls, identifier, since=since, until=until)
    if rows is None:
        raise AwsError("could not read CloudWatch's metrics", detail=f"{calls.gaps[0].reason}.".replace("..", "."))
    return rows


def read_extremes(
    host: str, *, since: datetime, until: datetime, make_clients: Callable[..., AwsClients] = AwsClients
) -> tuple[list[CounterRow], list[CounterRow]]:
    """Return CloudWatch's metrics of an endpoint's instance: the means of each minute, and its highest values.

    Rows are as `read_instance_metrics` returns them; there are none if `host` is no endpoint. Needs
    rds:DescribeDBInstances and cloudwatch:GetMetricStatistics. Raises AwsError if the instance cannot be found.
    """
    with _finding_instance(host, make_clients) as found:
        if found is None:
            return [], []
        calls, name = found[0], found[1]["DBInstanceIdentifier"]
        rows = [
            _ask_metrics(calls, name, since=since, until=until, statistic=statistic)
            for statistic in ("Average", "Maximum")
        ]
    return rows[0] or [], rows[1] or []


def read_late_points(
    host: str, *, since: datetime, now: datetime, make_clients: Callable[..., AwsClients] = AwsClients
) -> dict[str, list[CounterRow]]:
    """Return values of an instance that AWS has since a time, as rows of a recording, by the name of their table.

    The tables are RDS_METRICS, from CloudWatch, and RDS_LOAD, from Performance Insights. `host` is the instance's
    endpoint. Metrics that AWS denies are missing. Needs rds:DescribeDBInstances, cloudwatch:GetMetricStatistics, and
    pi:GetResourceMetrics if Performance Insights is on. Raises AwsError if the instance cannot be found.
    """
    with _finding_instance(host, make_clients) as found:
        if found is None:
            return {}
        calls, instance = found
        since = max(since, now - _AGE)
        metrics, load = calls.together(
            lambda: _ask_metrics(calls, instance["DBInstanceIdentifier"], since=since, until=now),
            lambda: _ask_load(calls, instance, since=since, until=now),
        )
    return {RDS_METRICS: metrics or [], RDS_LOAD: load}


def _ask_metrics(
    calls: Calls, identifier: str, *, since: datetime, until: datetime, statistic: str = "Average"
) -> list[CounterRow] | None:
    """Return a row for each period that CloudWatch has, oldest first; None if every metric is refused."""
    period_s = _PERIOD_S * max(1, math.ceil((until - since).total_seconds() / _PERIOD_S / _MOST_POINTS))

    def ask(name: str) -> list[Raw] | None:
        return ask_metric(calls, identifier, name, since=since, until=until, period_s=period_s, statistic=statistic)

    answers = calls.together(*(partial(ask, name) for name in METRIC_NAMES))
    if all(points is None for points in answers):
        return None
    rows: dict[str, dict[str, object]] = {}
    for name, points in zip(METRIC_NAMES, answers, strict=True):
        for point in points or ():
            at = point["Timestamp"].isoformat()
            known = {"instance": identifier, "measured_at": at, "period_s": period_s}
            rows.setdefault(at, known)[name] = float(point[statistic])
    return [rows[at] for at in sorted(rows)]


def _ask_load(calls: Calls, instance: Raw, *, since: datetime, until: datetime) -> list[CounterRow]:
    """Return the active sessions of each minute by wait event; no rows if Performance Insights is off."""
    if not instance.get("PerformanceInsightsEnabled") or since >= until:
        return []
    found = calls.ask(
        "pi",
        "get_resource_metrics",
        "MetricList",
        ServiceType="RDS",
        Identifier=instance["DbiResourceId"],
        MetricQueries=[{"Metric": "db.load.avg", "GroupBy": {"Group": "db.wait_event", "Limit": _MOST_WAITS}}],
        StartTime=since,
        EndTime=until,
        PeriodInSeconds=_PERIOD_S,
    )
    rows: list[CounterRow] = []
    for each in found or ():
        waits = each["Key"].get("Dimensions")
        for point in each.get("DataPoints", ()) if waits else ():
            # AWS has no value for the present minute.
            if (value := point.get("Value")) is not None:
                known = {"instance": instance["DBInstanceIdentifier"], "measured_at": point["Timestamp"].isoformat()}
                rows.append({**known, "period_s": _PERIOD_S, "wait": waits["db.wait_event.name"], "sessions": value})
    return sorted(rows, key=lambda row: str(row["measured_at"]))


def ask_recent(calls: Calls, instance: Raw, name: str, *, now: datetime) -> list[Raw] | None:
    """Return CloudWatch's recent data points of a metric of an instance, None if AWS does not give them."""
    return ask_metric(calls, instance["DBInstanceIdentifier"], name, since=now - _AGE, until=now)


def ask_metric(
    calls: Calls,
    identifier: str,
    name: str,
    *,
    since: datetime,
    until: datetime,
    period_s: int = _PERIOD_S,
    statistic: str = "Average",
) -> list[Raw] | None:
    """Return CloudWatch's data points of a metric of an instance, None if AWS does not give them.

    Each has the statistic of `period_s` seconds under its name, and their "Timestamp".
    """
    return calls.ask(
        "cloudwatch",
        "get_metric_statistics",
        "Datapoints",
        Namespace="AWS/RDS",
        MetricName=name,
        Dimensions=[{"Name": "DBInstanceIdentifier", "Value": identifier}],
        StartTime=since,
        EndTime=until,
        Period=period_s,
        Statistics=[statistic],
    )


def newest(points: list[Raw]) -> Raw:
    """Return the latest of CloudWatch's data points. `points` must not be empty."""
    return max(points, key=lambda point: point["Timestamp"])
