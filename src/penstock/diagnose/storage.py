"""Rules for sessions that wait for the volume with the data: its limits, checkpoints, and reads of indexes."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from penstock.diagnose.activity import Tally
from penstock.diagnose.case import number
from penstock.diagnose.counted import Increase
from penstock.diagnose.devices import DATA, are_counters, read_device
from penstock.diagnose.wal import is_wal_wait
from penstock.model.server.device import rates
from penstock.units import KIB, MB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.diagnose.activity import Moment
    from penstock.diagnose.case import Case
    from penstock.model.diagnosis import Diagnosis, Evidence
    from penstock.model.recording import Sample
    from penstock.model.server.device import DeviceCounters, DeviceRates

# With a smaller share of waits, even a faster volume does not make a workload a tenth faster.
_LEAST_SHARE = 0.1

# A volume is at its limit if it is never idle, holds more than one request, and its rate is steady: in most seconds
# the rate is near the median. A queue alone proves nothing: a device that serves many requests at once has one too.
_BUSY = 0.9
_LEAST_QUEUE = 1.0
_STEADY_WITHIN = 0.2
_MOSTLY = 0.6
_FEWEST_SECONDS = 3

# Requests of EBS volumes count as one operation up to 256 KiB, but PostgreSQL's are 8 KiB unless the kernel joins them.
# From this mean size on, a volume without a known limit is taken to be at its throughput.
_LARGE_REQUEST = 64 * KIB

# Checkpoints that are requested at least this often are forced by WAL, not by a person.
_OFTEN_S = 30.0
_FEWEST_CHECKPOINTS = 3

_BLOCK_BYTES = 8192

# An index costs random reads if at least this many of its blocks are read for each row.
_LEAST_READS = 0.2

_READ = frozenset(("io:datafileread", "io:aioiocompletion", "io:datafileprefetch"))


def is_data_wait(wait: str) -> bool:
    """Return whether a wait is for I/O of tables and indexes."""
    return wait.startswith(("io:datafile", "io:aio", "io:slru"))


class DataVolume:
    """The rule for sessions that wait for a volume that serves as many requests, or bytes, as it can."""

    def __init__(self) -> None:
        self._part = Tally()
        self._rates: dict[str, list[DeviceRates]] = {}
        self._last: dict[str, DeviceCounters] = {}
        self._with_data: set[str] = set()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Take a sample."""
        for row in sample.counters.get("host_devices", ()):
            if are_counters(row):
                self._see_device(str(row.get("device")), read_device(row))
                if row.get("tablespace") == DATA:
                    self._with_data.add(str(row.get("device")))
        for moment in moments:
            if is_data_wait(moment.wait) or is_wal_wait(moment.wait):
                self._part.add(moment)

    def _see_device(self, device: str, now: DeviceCounters) -> None:
        before = self._last.setdefault(device, now)
        # A device with several tablespaces has several rows.
        if now.at_s > before.at_s:
            self._rates.setdefault(device, []).append(rates(before, now))
            self._last[device] = now

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if sessions wait for a volume that is at its limit."""
        if case.share(self._part) < _LEAST_SHARE:
            return []
        found = []
        for device in sorted(self._with_data):
            seen = self._rates.get(device, [])
            busy = [each for each in seen if each.busy >= _BUSY and each.queue >= _LEAST_QUEUE]
            if len(busy) < max(_FEWEST_SECONDS, _MOSTLY * len(seen)):
                continue
            is_large = median(each.request_bytes or 0.0 for each in busy) >= _LARGE_REQUEST
            if is_steady([_bytes(each) if is_large else _operations(each) for each in busy]):
                code = "volume-throughput" if is_large else "volume-iops"
                found.append(case.conclude(code, self._part, _describe(busy), device=device))
        return found


def is_steady(values: Sequence[float]) -> bool:
    """Return whether most values are near their median.

    >>> is_steady([750, 748, 760, 300]), is_steady([100, 700, 300, 900])
    (True, False)
    """
    middle = median(values)
    near = sum(abs(value - middle) <= _STEADY_WITHIN * middle for value in values)
    return near >= _MOSTLY * len(values)


def _operations(each: DeviceRates) -> float:
    return each.read_iops + each.write_iops


def _bytes(each: DeviceRates) -> float:
    return each.read_bytes_per_s + each.write_bytes_per_s


def _describe(busy: Sequence[DeviceRates]) -> list[Evidence]:
    """Return the medians of the seconds in which the device was busy."""
    figures: list[tuple[str, str, list[float]]] = [
        ("reads per second", "", [each.read_iops for each in busy]),
        ("writes per second", "", [each.write_iops for each in busy]),
        ("read and written", "MB/s", [_bytes(each) / MB for each in busy]),
        ("size of a request", "KiB", [each.request_bytes / KIB for each in busy if each.request_bytes]),
        ("requests in the queue", "", [each.queue for each in busy]),
        ("read latency", "ms", [1000 * each.read_latency_s for each in busy if each.read_latency_s]),
        ("write latency", "ms", [1000 * each.write_latency_s for each in busy if each.write_latency_s]),
    ]
    return [number(name, median(values), unit) for name, unit, values in figures if values]


class ForcedCheckpoints:
    """The rule for checkpoints that begin because max_wal_size is reached, not because checkpoint_timeout is over."""

    def __init__(self) -> None:
        self._part = Tally()
        self._requested, self._timed = Increase(), Increase()
        self._images, self._wal_bytes = Increase(), Increase()

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Take a sample."""
        counters = sample.counters
        for row in counters.get("pg_stat_checkpointer", ()):
            self._requested.see(row.get("num_requested"))
            self._timed.see(row.get("num_timed"))
        for row in counters.get("pg_stat_bgwriter", ()):
            # Before PostgreSQL 17 the counters are here.
            self._requested.see(row.get("checkpoints_req"))
            self._timed.see(row.get("checkpoints_timed"))
        for row in counters.get("pg_stat_wal", ()):
            self._images.see(row.get("wal_fpi"))
            self._wal_bytes.see(row.get("wal_bytes"))
        for moment in moments:
            if is_data_wait(moment.wait) or is_wal_wait(moment.wait):
                self._part.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis if checkpoints are requested often while sessions wait for I/O."""
        count = self._requested.total
        often = max(_FEWEST_CHECKPOINTS, case.elapsed_s / _OFTEN_S)
        if count < often or count <= self._timed.total or case.share(self._part) < _LEAST_SHARE:
            return []
        evidence = [
            number("checkpoints requested", count),
            number("between two of them", case.elapsed_s / count, "s"),
        ]
        if self._wal_bytes.total:
            images = min(1.0, self._images.total * _BLOCK_BYTES / self._wal_bytes.total)
            evidence.append(number("of the WAL are full-page images, at most", 100 * images, "%"))
            evidence.append(number("WAL", self._wal_bytes.total / case.elapsed_s / MB, "MB/s"))
        setting = case.header.settings.get("max_wal_size", "its present value")
        return [case.conclude("checkpoints-forced", self._part, evidence, setting=setting)]


class IndexReads:
    """The rule for sessions that wait for reads of index blocks, because the indexes do not fit into memory."""

    def __init__(self) -> None:
        self._part = Tally()
        self._reads: dict[tuple[str, str], Increase] = {}
        self._rows: dict[str, Increase] = {}

    def see(self, sample: Sample, moments: Sequence[Moment]) -> None:
        """Take a sample."""
        for row in sample.counters.get("pg_statio_user_indexes", ()):
            table = f"{row.get('schemaname')}.{row.get('relname')}"
            key = (table, str(row.get("indexrelname")))
            self._reads.setdefault(key, Increase()).see(row.get("idx_blks_read"))
            self._rows.setdefault(table, Increase()).see(row.get("n_tup_changed"))
        for moment in moments:
            if moment.wait in _READ:
                self._part.add(moment)

    def conclude(self, case: Case) -> list[Diagnosis]:
        """Return a diagnosis that names the index with the most reads, if rows need them."""
        if not self._reads or case.share(self._part) < _LEAST_SHARE:
            return []
        (table, index), reads = max(self._reads.items(), key=lambda item: item[1].total)
        rows = self._rows[table].total
        if not rows or reads.total / rows < _LEAST_READS:
            return []
        evidence = [
            number("blocks of it read for each row", reads.total / rows),
            number("rows inserted, updated or deleted", rows),
        ]
        return [case.conclude("index-reads", self._part, evidence, index=index, table=table)]
