"""Measures what a recording's workload did on the volume of the data, as values from which package storage plans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.diagnose.devices import DATA, are_counters, read_device, read_metrics
from penstock.model.server.counters import RDS_METRICS, CounterRow
from penstock.model.server.device import DeviceCounters, DeviceRates, count_bytes, count_ios, is_reset, rates
from penstock.storage.demand import Use
from penstock.storage.volume import IO_BYTES

if TYPE_CHECKING:
    from penstock.model.recording import RecordingHeader, Sample

# Readings that follow sooner belong to the same tick.
_LEAST_INTERVAL_S = 0.4


class UseReader:
    """Reads samples one by one. `uses` is what the device of the data did; `rows` are CloudWatch's metrics."""

    def __init__(self, header: RecordingHeader) -> None:
        self._cpu_count = header.cpu_count
        self._last: DeviceCounters | None = None
        self._cpu_s, self._known_s = 0.0, 0.0
        self.started_at = header.started_at
        self.elapsed_s = 0.0
        self.uses: list[Use] = []
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


def read_metrics_as_uses(rows: Iterable[CounterRow]) -> list[Use]:
    """Return what an RDS instance did, from CloudWatch's metrics: each minute once, in order. Rows may be late."""
    by_time = {str(row.get("measured_at")): row for row in rows}
    found = [_read_row(by_time[at]) for at in sorted(by_time)]
    return [use for use in found if use is not None]


def read_balance(rows: Iterable[CounterRow]) -> float | None:
    """Return which part of the burst bucket was full at first, None if CloudWatch has not reported it."""
    known = [row for row in rows if isinstance(row.get("BurstBalance"), int | float)]
    first = min(known, key=lambda row: str(row.get("measured_at")), default=None)
    value: Any = None if first is None else first["BurstBalance"]
    return None if value is None else value / 100


def _read_row(row: CounterRow) -> Use | None:
    seen = read_metrics(row)
    if seen is None:
        return None
    cpu_percent: Any = row.get("CPUUtilization")
    queue = seen.queue if "DiskQueueDepth" in row else None
    return _make_use(seen, queue=queue, cpu_share=None if cpu_percent is None else min(1.0, cpu_percent / 100))


def _make_use(seen: DeviceRates, *, queue: float | None, cpu_share: float | None) -> Use:
    return Use(
        elapsed_s=seen.elapsed_s,
        ios=count_ios(seen, IO_BYTES) * seen.elapsed_s,
        moved_bytes=count_bytes(seen) * seen.elapsed_s,
        queue=queue,
        cpu_share=cpu_share,
    )
