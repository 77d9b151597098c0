"""Measures the I/O of a workload on its volume, and estimates how long it would take on other storage. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from penstock.core.slotted import slotted
from penstock.core.values.device import (
    RDS_METRICS,
    CounterRow,
    DeviceCounters,
    DeviceRates,
    VolumeLimits,
    count_bytes,
    count_ios,
    is_reset,
    rates,
)
from penstock.rds.volumes import IO_BYTES, Bucket, VolumeKind, find_figure
from penstock.watch.devices import DATA, are_counters, read_device, read_metrics

if TYPE_CHECKING:
    from penstock.watch.values import RecordingHeader, Sample

Limit = Literal["volume-iops", "volume-throughput", "instance-limit"]

# Storage was at a limit in a period only if the period's work, done at this limit, takes at least this share of the
# period. And more than one request must be in flight: a single request waits for its latency, not for a limit.
_AT_LIMIT = 0.9
_LEAST_QUEUE = 1.0

# If storage was at its limit for less than this share of the time, faster storage gains little.
_WORTH = 0.1

# No storage is expected to make a workload more than twenty times as fast.
_MOST_GAIN = 20


@slotted
class WorkloadIo:
    """The I/O of a workload in a period."""

    elapsed_s: float
    # I/Os of at most 256 KiB.
    ios: float
    moved_bytes: float
    # The mean number of requests in flight, None if it is not known.
    queue: float | None = None
    # The busy share of all processors, None if it is not known.
    cpu_share: float | None = None
    # How long the same work takes if storage has no limit.
    least_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.least_s:
            object.__setattr__(self, "least_s", self.elapsed_s)


@slotted
class Demand:
    """A workload's use of its storage."""

    # The parts of the workload. The `least_s` of a part is the time that it takes if storage limits it only by the
    # latency of gp2, gp3 and io1.
    uses: tuple[WorkloadIo, ...]
    # The same parts with the latency of io2.
    uses_on_io2: tuple[WorkloadIo, ...]
    # The limit that the workload reached, None if it reached none.
    limit: Limit | None
    # How long the workload was at this limit.
    limited_s: float
    # The part of the burst bucket that was full at the start.
    balance_share: float
    # How many seconds the workload takes on storage with these limits. This is more than the recorded time if the
    # workload was recorded on faster storage.
    here_s: float

    @property
    def is_faster(self) -> bool:
        """Return whether the workload was recorded on storage that is faster than the limits in question."""
        return self.here_s > self.elapsed_s / _AT_LIMIT

    def on(self, kind: VolumeKind) -> Demand:
        """Return the demand on storage of a kind. With io2's shorter latency, the same queue makes more requests."""
        return replace(self, uses=self.uses_on_io2) if kind == "io2" else self

    @property
    def elapsed_s(self) -> float:
        """Return how long the workload was seen."""
        return sum(use.elapsed_s for use in self.uses)

    @property
    def most_iops(self) -> float:
        """Return the least IOPS with which storage does not limit the workload."""
        return self._most([(use.ios, use.least_s, use.elapsed_s) for use in self.uses])

    @property
    def most_bytes_per_s(self) -> float:
        """Return the least throughput with which storage does not limit the workload."""
        return self._most([(use.moved_bytes, use.least_s, use.elapsed_s) for use in self.uses])

    def _most(self, amounts: Sequence[tuple[float, float, float]]) -> float:
        """Return the mean rate of the parts that were limited, or the rate of another part if that is larger."""
        limited = [(amount, least_s) for amount, least_s, elapsed_s in amounts if least_s < elapsed_s]
        free = [amount / elapsed_s for amount, least_s, elapsed_s in amounts if least_s >= elapsed_s]
        mean = sum(amount for amount, _ in limited) / sum(least_s for _, least_s in limited) if limited else 0.0
        # The rate is rounded here, so that 4,500 does not become 4,501 when it is rounded up.
        return round(max(mean, *free, 0.0), 3)


def measure_demand(uses: Sequence[WorkloadIo], limits: VolumeLimits, balance_share: float | None) -> Demand:
    """Return what a workload asked of storage with these limits. At least the IOPS of the limits must be known.

    If `balance_share` is None, it is not known how full the burst bucket was at the start. In this case the bucket
    counts as empty if requests waited although the volume did no more than its baseline, and as full otherwise.
    """
    if balance_share is not None or limits.burst_ios is None:
        return _measure(uses, limits, 1.0 if balance_share is None else balance_share)
    full, spent = _measure(uses, limits, 1.0), _measure(uses, limits, 0.0)
    is_spent = full.limit is None and spent.limited_s > spent.elapsed_s / 2 and spent.limit == "volume-iops"
    never_above = all(use.ios <= (limits.iops or math.inf) * use.elapsed_s / _AT_LIMIT for use in uses)
    return spent if is_spent and never_above else full


def simulate(uses: Iterable[WorkloadIo], limits: VolumeLimits, balance_share: float) -> float:
    """Return how many seconds the same work takes on storage with these limits, with a simulated burst bucket."""
    bucket = bucket_of(limits)
    balance_ios, total_s = balance_share * bucket.capacity_ios, 0.0
    for use in uses:
        times = _least_times(use, limits)
        elapsed_s, balance_ios = bucket.take(
            balance_ios=balance_ios, ios=use.ios, least_s=max(use.least_s, *times.values())
        )
        total_s += elapsed_s
    return total_s


def _measure(uses: Sequence[WorkloadIo], limits: VolumeLimits, balance_share: float) -> Demand:
    bucket = bucket_of(limits)
    balance_ios = balance_share * bucket.capacity_ios
    reached: list[Limit | None] = []
    were_limited: list[bool] = []
    for use in uses:
        volume_s, _ = bucket.take(balance_ios=balance_ios, ios=use.ios, least_s=0.0)
        times: dict[Limit, float] = {"volume-iops": volume_s, **_least_times(use, limits)}
        slowest_s, limit = max((each_s, name) for name, each_s in times.items())
        is_impossible = slowest_s > use.elapsed_s / _AT_LIMIT
        waited = use.queue is None or use.queue >= _LEAST_QUEUE
        is_there = is_impossible or (waited and slowest_s >= _AT_LIMIT * use.elapsed_s)
        reached.append(limit if is_there else None)
        were_limited.append(is_there and not is_impossible)
        _, balance_ios = bucket.take(balance_ios=balance_ios, ios=use.ios, least_s=use.elapsed_s)
    limited: dict[Limit, float] = {
        limit: sum(use.elapsed_s for use, each in zip(uses, reached, strict=True) if each == limit)
        for limit in reached
        if limit is not None
    }
    main = max(limited.items(), key=lambda item: item[1])[0] if limited else None
    limited_s = sum(limited.values())
    if limited_s < _WORTH * sum(use.elapsed_s for use in uses):
        main = None
    free = _free(uses, were_limited, limits, "gp3")
    return Demand(
        uses=free,
        uses_on_io2=_free(uses, were_limited, limits, "io2"),
        limit=main,
        limited_s=limited_s,
        balance_share=balance_share,
        here_s=simulate(free, limits, balance_share),
    )


def _free(
    uses: Sequence[WorkloadIo], were_limited: Sequence[bool], limits: VolumeLimits, kind: VolumeKind
) -> tuple[WorkloadIo, ...]:
    """Return the uses with the time that each takes if the volume does not limit it.

    A part that the volume did limit has other limits then: the instance, the processors (which the part kept busy for a
    share of the time), and the latency of the kind of storage (a queue waits at least this long for each I/O).
    """
    latency_s = find_figure(kind, "least_latency_us") / 1e6
    shares = [use.cpu_share for use, was in zip(uses, were_limited, strict=True) if was and use.cpu_share is not None]
    cpu_share = min(1.0, fmean(shares)) if shares else 0.0
    return tuple(
        replace(use, least_s=_free_s(use, limits, cpu_share, latency_s)) if was_limited else use
        for use, was_limited in zip(uses, were_limited, strict=True)
    )


def _free_s(use: WorkloadIo, limits: VolumeLimits, cpu_share: float, latency_s: float) -> float:
    waits_s = use.ios * latency_s / use.queue if use.queue else 0.0
    instance_s = _least_times(use, limits)["instance-limit"]
    return min(use.elapsed_s, max(cpu_share * use.elapsed_s, waits_s, instance_s, use.elapsed_s / _MOST_GAIN))


def _least_times(use: WorkloadIo, limits: VolumeLimits) -> dict[Limit, float]:
    """Return how long the use takes by each limit alone. The volume's IOPS are not included."""
    instance_s = use.ios / (limits.instance_iops or math.inf)
    return {
        "volume-throughput": use.moved_bytes / (limits.bytes_per_s or math.inf),
        "instance-limit": max(instance_s, use.moved_bytes / (limits.instance_bytes_per_s or math.inf)),
    }


def bucket_of(limits: VolumeLimits) -> Bucket:
    """Return the burst bucket of storage. Without a burst, its capacity is 0."""
    iops = limits.iops or 1
    return Bucket(
        capacity_ios=limits.burst_ios or 0, baseline_iops=iops, burst_iops=max(iops, limits.burst_iops or iops)
    )


# Readings that are less than this apart belong to the same tick.
_LEAST_INTERVAL_S = 0.4


class WorkloadIoReader:
    """Reads samples one by one. `uses` is the I/O of the device with the data; `rows` are CloudWatch's metrics."""

    def __init__(self, header: RecordingHeader) -> None:
        self._cpu_count = header.cpu_count
        self._last: DeviceCounters | None = None
        self._cpu_s, self._known_s = 0.0, 0.0
        self.started_at = header.started_at
        self.elapsed_s = 0.0
        self.uses: list[WorkloadIo] = []
        self.rows: list[CounterRow] = []

    def see(self, sample: Sample) -> None:
        """Add a sample."""
        self.elapsed_s = max(self.elapsed_s, sample.at_s)
        self.rows += sample.counters.get(RDS_METRICS, ())
        if sample.host_busy_cpus is not None and self._cpu_count:
            self._cpu_s += sample.host_busy_cpus * sample.interval_s / self._cpu_count
            self._known_s += sample.interval_s
        for row in sample.counters.get("host_devices", ()):
            if row.get("tablespace") == DATA and are_counters(row):
                self._add(read_device(row))

    def _add(self, now: DeviceCounters) -> None:
        if self._last is not None and not is_reset(self._last, now):
            if now.at_s - self._last.at_s < _LEAST_INTERVAL_S:
                return
            seen = rates(self._last, now)
            cpu_share = min(1.0, self._cpu_s / self._known_s) if self._known_s else None
            self.uses.append(_make_use(seen, queue=seen.queue, cpu_share=cpu_share))
        self._last, self._cpu_s, self._known_s = now, 0.0, 0.0


def read_metrics_as_uses(rows: Iterable[CounterRow]) -> list[WorkloadIo]:
    """Return the I/O of an RDS instance, from CloudWatch's metrics: each minute once, the oldest first."""
    by_time = {str(row.get("measured_at")): row for row in rows}
    found = [_read_row(by_time[at]) for at in sorted(by_time)]
    return [use for use in found if use is not None]


def read_balance(rows: Iterable[CounterRow]) -> float | None:
    """Return which part of the burst bucket was full at first, or None if CloudWatch did not report it."""
    known = [row for row in rows if isinstance(row.get("BurstBalance"), int | float)]
    first = min(known, key=lambda row: str(row.get("measured_at")), default=None)
    value: Any = None if first is None else first["BurstBalance"]
    return None if value is None else value / 100


def _read_row(row: CounterRow) -> WorkloadIo | None:
    seen = read_metrics(row)
    if seen is None:
        return None
    cpu_percent: Any = row.get("CPUUtilization")
    queue = seen.queue if "DiskQueueDepth" in row else None
    return _make_use(seen, queue=queue, cpu_share=None if cpu_percent is None else min(1.0, cpu_percent / 100))


def _make_use(seen: DeviceRates, *, queue: float | None, cpu_share: float | None) -> WorkloadIo:
    return WorkloadIo(
        elapsed_s=seen.elapsed_s,
        ios=count_ios(seen, IO_BYTES) * seen.elapsed_s,
        moved_bytes=count_bytes(seen) * seen.elapsed_s,
        queue=queue,
        cpu_share=cpu_share,
    )
