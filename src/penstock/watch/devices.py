"""Measures the I/O and the free space of the devices that hold a server's tablespaces."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.core.slotted import slotted
from penstock.core.values.device import (
    LOCAL_METRICS,
    LOCAL_STORAGE,
    TIERED_CACHE,
    CounterRow,
    DeviceCounters,
    DeviceRates,
    TieredCache,
    is_reset,
    rates,
    read_tiered_cache,
)
from penstock.watch.holders import read_int

if TYPE_CHECKING:
    from penstock.watch.values import Sample

# The tablespace in the data directory.
DATA = "pg_default"

# The name under which a recording has the device of pg_wal.
WAL = "pg_wal"

_QUARTERS = 4
# The readings are divided into four quarters. If the free space falls from one quarter to the next by less than this
# part of the mean fall, the device does not fill steadily.
_LEAST_FALL = 0.3

_COUNTERS = tuple(field.name for field in fields(DeviceCounters))
# Recordings before flushes were read lack them.
_NUMBERS = (*(name for name in _COUNTERS if name != "flushes"), "free_bytes", "size_bytes")


@slotted
class DeviceUse:
    """The use of a device between the first and the last reading.

    If the host was restarted in between, only the readings after the restart count.
    """

    device: str
    kind: str
    # The tablespaces on the device.
    tablespaces: tuple[str, ...]
    rates: DeviceRates
    # The free space and the size at the last reading.
    free_bytes: int
    size_bytes: int
    # The least free space of all readings. It may be less than the last reading, because a statement that fails on a
    # full disk frees the space that it used.
    least_free_bytes: int
    # The time until the disk is full at the measured rate, None if it does not fill.
    full_in_s: float | None = None

    @property
    def has_data(self) -> bool:
        """Return whether the data directory is on the device."""
        return DATA in self.tablespaces

    def as_metrics(self) -> dict[str, float | None]:
        """Return the seven metrics of local storage by CloudWatch's names, in its units."""
        return {**self.rates.as_metrics(), "FreeLocalStorage": self.free_bytes}


class DeviceMeter:
    """Reads samples one by one. It keeps the free space at each reading."""

    def __init__(self) -> None:
        self._seen: dict[str, _DeviceReadings] = {}

    def see(self, sample: Sample) -> None:
        """Add a sample's reading, if it has one."""
        for row in sample.counters.get("host_devices", ()):
            if are_counters(row):
                device = str(row.get("device"))
                if device not in self._seen:
                    self._seen[device] = _DeviceReadings(first=row)
                self._seen[device].add(row)

    def result(self) -> tuple[DeviceUse, ...]:
        """Return the use of each device that has two readings or more. The device of the data directory comes first."""
        found = (_measure(device, seen) for device, seen in self._seen.items())
        return tuple(sorted((use for use in found if use is not None), key=lambda use: not use.has_data))


def measure_devices(samples: Iterable[Sample]) -> tuple[DeviceUse, ...]:
    """Return the use of each device in a run of samples."""
    meter = DeviceMeter()
    for sample in samples:
        meter.see(sample)
    return meter.result()


def find_local_storage(samples: Sequence[Sample]) -> dict[str, object] | None:
    """Return CloudWatch's newest metrics of local storage, by their names, with instance and measured_at."""
    rows = (row for sample in reversed(samples) for row in sample.counters.get(LOCAL_STORAGE, ()))
    newest = next(rows, None)
    return None if newest is None else dict(newest)


def find_tiered_cache(samples: Sequence[Sample]) -> TieredCache | None:
    """Return the newest reading of Aurora's tiered cache."""
    rows = (row for sample in reversed(samples) for row in sample.counters.get(TIERED_CACHE, ()))
    return read_tiered_cache(next(rows, None))


def local_metrics(row: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics of local storage in a row."""
    return {name: float(value) for name in LOCAL_METRICS if isinstance(value := row.get(name), int | float)}


def are_counters(row: CounterRow) -> bool:
    """Return whether a row has all numbers of a device. A recording that another program wrote may lack some."""
    return all(isinstance(row.get(name), int | float) for name in _NUMBERS)


class _DeviceReadings:
    """The readings of one device since the host was started."""

    def __init__(self, first: CounterRow) -> None:
        # The last row.
        self.end = first
        self.first = self.last = read_device(first)
        self.tablespaces: dict[str, None] = {}
        self.at_s = array("d")
        self.free = array("d")

    def add(self, row: CounterRow) -> None:
        now = read_device(row)
        if is_reset(self.last, now):
            self.first = now
            self.at_s, self.free = array("d"), array("d")
        self.last, self.end = now, row
        self.tablespaces[str(row.get("tablespace"))] = None
        if not self.at_s or now.at_s > self.at_s[-1]:
            self.at_s.append(now.at_s)
            least = row.get("least_free_bytes")
            self.free.append(least if isinstance(least, int) else read_int(row, "free_bytes"))


def _measure(device: str, seen: _DeviceReadings) -> DeviceUse | None:
    first, last = seen.first, seen.last
    if last.at_s <= first.at_s:
        return None
    end: Any = seen.end
    return DeviceUse(
        device=device,
        kind=str(end.get("kind")),
        tablespaces=tuple(seen.tablespaces),
        rates=rates(first, last),
        full_in_s=time_until_full(seen.at_s, seen.free),
        free_bytes=int(end["free_bytes"]),
        least_free_bytes=int(min(seen.free)),
        size_bytes=int(end["size_bytes"]),
    )


def read_device(row: CounterRow) -> DeviceCounters:
    """Return the counters in a row that has all of them."""
    values: dict[str, Any] = {name: row[name] for name in _COUNTERS if name in row}
    return DeviceCounters(**values)


def read_metrics(row: CounterRow) -> DeviceRates | None:
    """Return the rates of an RDS instance's storage in one period of CloudWatch's metrics; None if some are missing.

    CloudWatch has no share of busy time, so `busy` is 0.
    """
    values: dict[str, Any] = {name: value for name, value in row.items() if isinstance(value, int | float)}
    needed = {"ReadIOPS", "WriteIOPS", "ReadThroughput", "WriteThroughput", "period_s"}
    if not needed <= values.keys() or values["period_s"] <= 0:
        return None
    iops, moved = values["ReadIOPS"] + values["WriteIOPS"], values["ReadThroughput"] + values["WriteThroughput"]
    return DeviceRates(
        elapsed_s=float(values["period_s"]),
        read_iops=values["ReadIOPS"],
        write_iops=values["WriteIOPS"],
        read_bytes_per_s=values["ReadThroughput"],
        write_bytes_per_s=values["WriteThroughput"],
        read_latency_s=values.get("ReadLatency"),
        write_latency_s=values.get("WriteLatency"),
        request_bytes=moved / iops if iops else None,
        queue=values.get("DiskQueueDepth", 0.0),
        busy=0.0,
    )


def time_until_full(at_s: Sequence[float], free: Sequence[float]) -> float | None:
    """Return in how many seconds a device will be full at the measured rate, or None if it does not fill.

    Temporary files are created and removed all the time, so a single file that grows is not a trend. A device fills
    only if its least free space falls from each quarter of the readings to the next by a similar amount.
    """
    if len(free) < _QUARTERS:
        return None
    edges = [len(free) * number // _QUARTERS for number in range(_QUARTERS + 1)]
    lows = [min(zip(free[start:end], at_s[start:end], strict=True)) for start, end in pairwise(edges)]
    falls = [before - after for (before, _), (after, _) in pairwise(lows)]
    mean = sum(falls) / len(falls)
    if mean <= 0 or min(falls) < _LEAST_FALL * mean:
        return None
    (_, began_s), (least, ended_s) = lows[0], lows[-1]
    return least * (ended_s - began_s) / sum(falls)
