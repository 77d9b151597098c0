"""Decides whether a device is at its limit: at a known limit of its volume or instance, or at a steady rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.slotted import slotted
from penstock.core.units import KIB, MB, format_duration
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
from penstock.watch.devices import DATA, WAL, are_counters, read_device, read_metrics

if TYPE_CHECKING:
    from penstock.watch.values import Sample

# Readings that are less than this apart belong to the same tick: a device with several tablespaces is read once for
# each tablespace.
_LEAST_INTERVAL_S = 0.4

# A device is at a known limit if its rate is at least this part of the limit.
_AT_LIMIT = 0.9

# If no limit is known, a device counts as at its limit if it is rarely idle, has at least one request in flight on
# average, and has a steady rate: the rate is near the median in most seconds, and higher in few. A queue alone proves
# nothing, because a device that can serve many requests at once has a queue too.
_BUSY = 0.8
_LEAST_QUEUE = 1.0
_STEADY_WITHIN = 0.2
_MOSTLY = 0.6
_RARELY = 0.2
_FEWEST_INTERVALS = 3

# PostgreSQL's requests are 8 KiB unless the kernel joins them. If the mean size is at least this and no limit of the
# volume is known, the limit counts as one of throughput, otherwise as one of IOPS.
_LARGE_REQUEST = 64 * KIB

# Only the last intervals show how fast a burst balance is spent now, because the demand may have changed.
_LAST_INTERVALS = 30
_SPENDING = 1.05


_MINUTE_S = 60.0


class Interval(NamedTuple):
    """A device's rates between two readings."""

    rates: DeviceRates
    # How long all sessions together waited for I/O between the two readings.
    waited_s: float


@slotted
class Ceiling:
    """The limit that a device has reached."""

    code: str
    reached: str
    intervals: tuple[Interval, ...]


class DeviceIntervals:
    """Reads samples one by one. It keeps the rates of each device between two readings."""

    def __init__(self) -> None:
        self._last: dict[str, DeviceCounters] = {}
        self._waited_s: dict[str, float] = {}
        self.by_device: dict[str, list[Interval]] = {}
        self.device_of: dict[str, str] = {}

    @property
    def has_wal(self) -> bool:
        """Return whether pg_wal is on the device of the data. Return true if its device is not known."""
        data = self.device_of.get(DATA)
        return self.device_of.get(WAL, data) == data

    def see(self, sample: Sample, *, data_s: float, wal_s: float) -> None:
        """Add a sample, with the sums of the sessions' waits for tables and for WAL since the recording's start."""
        rows = [row for row in sample.counters.get("host_devices", ()) if are_counters(row)]
        self.device_of |= {str(row.get("tablespace")): str(row.get("device")) for row in rows}
        waited_s = data_s + (wal_s if self.has_wal else 0.0)
        for row in rows:
            device, now = str(row.get("device")), read_device(row)
            before = self._last.setdefault(device, now)
            if is_reset(before, now):
                self._last[device], self._waited_s[device] = now, waited_s
            elif now.at_s - before.at_s >= _LEAST_INTERVAL_S:
                waited = waited_s - self._waited_s.get(device, 0.0)
                self.by_device.setdefault(device, []).append(Interval(rates(before, now), waited))
                self._last[device], self._waited_s[device] = now, waited_s


class MetricIntervals:
    """Reads samples one by one. It keeps CloudWatch's metrics, which replace device counters on RDS.

    The devices of RDS cannot be read. The metrics are means over a minute, and reach the recording some minutes later.
    Each value is assigned to the minute for which it was measured.
    """

    def __init__(self, started_at: str) -> None:
        self._started_s = datetime.fromisoformat(started_at).timestamp()
        self._waited_s: dict[int, float] = {}
        self._before_s = 0.0
        self.rows: dict[str, CounterRow] = {}

    def see(self, sample: Sample, waited_s: float) -> None:
        """Add a sample. `waited_s` is the sum of the sessions' waits for I/O since the recording's start."""
        minute = int((self._started_s + sample.at_s) // _MINUTE_S)
        self._waited_s[minute] = self._waited_s.get(minute, 0.0) + waited_s - self._before_s
        self._before_s = waited_s
        self.rows.update({str(row.get("measured_at")): row for row in sample.counters.get(RDS_METRICS, ())})

    def intervals(self) -> list[Interval]:
        """Return the rates of each period that the recording covers, oldest first."""
        found = []
        for at, row in sorted(self.rows.items()):
            first, seen = _read_minute(at), read_metrics(row)
            if first is not None and seen is not None:
                end = first + max(1, round(seen.elapsed_s / _MINUTE_S))
                waited_s = [waited for minute, waited in self._waited_s.items() if first <= minute < end]
                found += [Interval(seen, sum(waited_s))] if waited_s else []
        return found


def _read_minute(at: str) -> int | None:
    """Return the minute of a time, counted from 1970.

    None if the text is not a time: another program may have written it.
    """
    try:
        return int(datetime.fromisoformat(at).timestamp() // _MINUTE_S)
    except (OverflowError, ValueError):
        return None


def find_ceiling(intervals: Sequence[Interval], limits: VolumeLimits | None) -> Ceiling | None:
    """Return the limit that a device had reached while sessions waited for the device, or None."""
    waited = [each for each in intervals if each.waited_s > 0]
    if not waited:
        return None
    return _find_steady(waited) if limits is None else _find_known(waited, limits)


def _find_known(waited: Sequence[Interval], limits: VolumeLimits) -> Ceiling | None:
    """Return the known limit that a device had reached for most of the time that sessions waited for it, or None."""

    def ios(each: Interval) -> float:
        return count_ios(each.rates, limits.io_bytes)

    def moved(each: Interval) -> float:
        return count_bytes(each.rates)

    known = [
        ("volume-iops", limits.burst_iops, ios, "its volume's burst of {:,.0f} IOPS"),
        ("volume-iops", limits.iops, ios, "its volume's {:,.0f} IOPS"),
        ("volume-throughput", limits.bytes_per_s, moved, "its volume's {:,.0f} MB/s"),
        ("instance-limit", limits.instance_iops, ios, "its instance's {:,.0f} IOPS"),
        ("instance-limit", limits.instance_bytes_per_s, moved, "its instance's {:,.0f} MB/s"),
    ]
    found: list[tuple[float, float, Ceiling]] = []
    for code, limit, measure, reached in known:
        if limit is None:
            continue
        # If the rate exceeds the sustained rate, the volume bursts, and the sustained rate is not the limit.
        most = limit / _AT_LIMIT if limit == limits.iops and limits.burst_iops is not None else math.inf
        there = tuple(each for each in waited if _AT_LIMIT * limit <= measure(each) <= most)
        there_s = sum(each.waited_s for each in there)
        if len(there) >= _FEWEST_INTERVALS and there_s >= _MOSTLY * sum(each.waited_s for each in waited):
            text = reached.format(limit / MB if measure is moved else limit)
            ceiling = Ceiling(code=code, reached=text, intervals=there)
            found.append((there_s, median(measure(each) for each in there) / limit, ceiling))
    # If two limits are near each other, prefer the lower one: its rate is the larger part of the limit.
    return max(found, key=lambda each: each[:2])[2] if found else None


def _find_steady(waited: Sequence[Interval]) -> Ceiling | None:
    """Return the steady rate of a device that was busy for most of the time that sessions waited for it, or None."""
    busy = tuple(each for each in waited if each.rates.busy >= _BUSY and each.rates.queue >= _LEAST_QUEUE)
    busy_s = sum(each.waited_s for each in busy)
    if len(busy) < _FEWEST_INTERVALS or busy_s < _MOSTLY * sum(each.waited_s for each in waited):
        return None
    is_large = median(each.rates.request_bytes or 0.0 for each in busy) >= _LARGE_REQUEST
    values = [count_bytes(each.rates) if is_large else each.rates.read_iops + each.rates.write_iops for each in busy]
    if not is_steady(values):
        return None
    code = "volume-throughput" if is_large else "volume-iops"
    return Ceiling(code=code, reached="a steady rate, probably its limit", intervals=busy)


def is_steady(values: Sequence[float]) -> bool:
    """Return whether most values are near their median, and few are far above it.

    >>> is_steady([750, 748, 760, 300]), is_steady([100, 700, 300, 900]), is_steady([300, 300, 300, 900, 900])
    (True, False, False)
    """
    middle = median(values)
    near = sum(abs(value - middle) <= _STEADY_WITHIN * middle for value in values)
    above = sum(value > (1 + _STEADY_WITHIN) * middle for value in values)
    return near >= _MOSTLY * len(values) and above <= _RARELY * len(values)


def forecast_balance(intervals: Sequence[Interval], limits: VolumeLimits | None) -> tuple[float, str] | None:
    """Return in how many seconds a burst balance is spent at the present rate, and the same in words.

    If the balance at the start is not known, it counts as full, so the result is the longest possible time. Returns
    None if the volume has no burst balance, or if its balance is not being spent.
    """
    if limits is None or limits.iops is None or not limits.burst_ios or (limits.burst_iops or 0) <= limits.iops:
        return None
    now = intervals[-_LAST_INTERVALS:]
    elapsed_s = sum(each.rates.elapsed_s for each in now)
    done = sum(count_ios(each.rates, limits.io_bytes) * each.rates.elapsed_s for each in now)
    if len(now) < _FEWEST_INTERVALS or done < _SPENDING * limits.iops * elapsed_s:
        return None
    balance: float = limits.burst_ios if limits.balance_ios is None else limits.balance_ios
    for each in intervals:
        spent = (count_ios(each.rates, limits.io_bytes) - limits.iops) * each.rates.elapsed_s
        balance = min(limits.burst_ios, max(0.0, balance - spent))
    left_s = balance / (done / elapsed_s - limits.iops)
    return left_s, f"in {format_duration(left_s)}{' at the latest' if limits.balance_ios is None else ''}"
